"""All checks by kind. A new one is a function and a line here."""

from collections.abc import Collection

from knnmt.checks.kept import accelerators, addresses, code, escapes, numbers, placeholders, tags
from knnmt.checks.meaning import length, terms, untranslated
from knnmt.checks.pair import Check, Finding, Pair, Side
from knnmt.checks.writing import brackets, punctuation, quotes, repeated, space
from knnmt.errors import UsageError
from knnmt.languages import Languages, standard_tag
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Inline

CHECKS: dict[str, Check] = {
    "untranslated": untranslated,
    "placeholder": placeholders,
    "tag": tags,
    "escape": escapes,
    "address": addresses,
    "code": code,
    "number": numbers,
    "accelerator": accelerators,
    "term": terms,
    "length": length,
    "punctuation": punctuation,
    "bracket": brackets,
    "quote": quotes,
    "space": space,
    "repeated": repeated,
}
INCONSISTENT = "inconsistent"  # of several units: review.py
KINDS = (*CHECKS, INCONSISTENT)


def check(
    source: str | Inline,
    target: str | Inline,
    languages: Languages | None = None,
    glossary: Glossary | None = None,
    *,
    ignore: Collection[str] = (),
) -> list[Finding]:
    """What a reviewer should look at in a translation.

    >>> check("%d Dateien", "files", Languages("de", "en"))
    [Finding(kind='placeholder', message='%d is missing')]
    """
    pair = Pair(
        _side(source, languages.source if languages is not None else None),
        _side(target, languages.target if languages is not None else None),
        glossary,
    )
    if not pair.target.text.strip():  # nothing else can be said of it
        return [Finding("untranslated", message) for message in untranslated(pair) if "untranslated" not in ignore]
    return [
        Finding(kind, message)
        for kind, found in CHECKS.items()
        if kind not in ignore
        for message in dict.fromkeys(found(pair))
    ]


def _side(text: str | Inline, tag: str | None) -> Side:
    inline = Inline.plain(text) if isinstance(text, str) else text
    return Side(inline, standard_tag(tag).split("-")[0] if tag else None)


def require_kinds(kinds: Collection[str]) -> None:
    """Refuse the names of checks that do not exist."""
    for kind in kinds:
        if kind not in KINDS:
            raise UsageError(f"there is no check {kind!r}: use one of {', '.join(KINDS)}")
