"""All checks by kind. A new one is a function and a line here."""

from collections.abc import Collection

from knnmt.checks import kept, meaning, writing
from knnmt.checks.pair import Check, Finding, Pair, Side, Terms
from knnmt.errors import UsageError
from knnmt.languages import Languages, standard_tag
from knnmt.text.inline import Inline

CHECKS: dict[str, Check] = {
    "untranslated": meaning.untranslated,
    "placeholder": kept.placeholders,
    "tag": kept.tags,
    "escape": kept.escapes,
    "address": kept.addresses,
    "code": kept.code,
    "number": kept.numbers,
    "accelerator": kept.accelerators,
    "term": meaning.terms,
    "length": meaning.length,
    "punctuation": writing.punctuation,
    "bracket": writing.brackets,
    "quote": writing.quotes,
    "space": writing.space,
    "repeated": writing.repeated,
}
INCONSISTENT = "inconsistent"  # of several units: review.py
KINDS = (*CHECKS, INCONSISTENT)


def check(
    source: str | Inline,
    target: str | Inline,
    languages: Languages | None = None,
    glossary: Terms | None = None,
    *,
    ignore: Collection[str] = (),
) -> list[Finding]:
    """What a reviewer should look at in a translation.

    >>> check("%d Dateien", "files", Languages("de", "en"))
    [Finding(kind='placeholder', message='%d is missing')]
    """
    tags = (languages.source, languages.target) if languages is not None else (None, None)
    sides = [
        Side(Inline.plain(text) if isinstance(text, str) else text, standard_tag(tag).split("-")[0] if tag else None)
        for text, tag in zip((source, target), tags, strict=True)
    ]
    pair = Pair(*sides, glossary)
    if not pair.target.text.strip():  # nothing else can be said of it
        return [Finding("untranslated", message) for message in meaning.untranslated(pair) if "untranslated" not in ignore]
    return [
        Finding(kind, message)
        for kind, found in CHECKS.items()
        if kind not in ignore
        for message in dict.fromkeys(found(pair))
    ]


def require_kinds(kinds: Collection[str]) -> None:
    """Refuse the names of checks that do not exist."""
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"there is no check {kind!r}: use one of {', '.join(KINDS)}")
