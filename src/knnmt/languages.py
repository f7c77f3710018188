"""Languages and the direction of a translation: what `de`, `DE_de` and `pt-BR` have to do with each other."""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import langcodes
from langcodes.tag_parser import LanguageTagError

from knnmt.errors import UsageError

# In a string with hyphens only the capitals of a region or script tell `en-pt-BR` from `en-PT` + `br`.
_TAG = r"[a-z]{2,3}(?:[-_][A-Z][a-z]{3})?(?:[-_](?:[A-Z]{2}|[0-9]{3}))?"
_PAIR = re.compile(f"({_TAG})-({_TAG})")
# Without hyphens inside the tags any case will do: `DE-EN`, `pt_br-en`.
_LOOSE_PAIR = re.compile(r"([A-Za-z]{2,3}(?:_[A-Za-z0-9]{2,4})*)-([A-Za-z]{2,3}(?:_[A-Za-z0-9]{2,4})*)")


def normal_tag(tag: str) -> str:
    """Spell a tag as BCP 47 does: `DE_de` is `de-DE`, `zh_hans` `zh-Hans`, `sr@latin` `sr-Latn`. Others stay."""
    spelled = tag.strip().replace("@latin", "-Latn").replace("@", "-")  # gettext's modifiers
    try:
        return langcodes.Language.get(spelled, normalize=False).to_tag()
    except LanguageTagError:
        return tag


def standard_tag(tag: str) -> str:
    """The tag that all names of a language share: `deu`, `deu_Latn` and `de` are `de`, `arb` is `ar`, `iw` is `he`."""
    spelled = normal_tag(tag)
    try:
        return langcodes.standardize_tag(spelled, macro=True)
    except LanguageTagError:
        return spelled


@lru_cache(maxsize=4096)
def closeness(asked: str, found: str) -> int:
    """Rank a tag found in a file: 2 the one asked for, 1 it will do, 0 another language.

    `de` takes `de-DE` and `de-DE` takes `de`, but `pt-BR` never takes `pt-PT`.
    """
    asked, found = standard_tag(asked), standard_tag(found)
    if asked == found:
        return 2
    wanted, had = asked.split("-"), found.split("-")
    if wanted[0] != had[0]:
        return 0
    details, present = set(wanted[1:]), set(had[1:])
    return int(details <= present or present <= details)


@dataclass(frozen=True, slots=True)
class Languages:
    """The direction of translation, as two language tags: `de`, `pt-BR`, `zh-Hant`."""

    source: str
    target: str

    def __post_init__(self) -> None:
        if closeness(self.source, self.target):
            raise UsageError(
                f"{self.source!r} and {self.target!r} cannot be told apart as source and target: "
                f"name two languages, such as de-en"
            )

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read `de-en`, `en-pt-BR`, `DE-EN` or `pt_br-en`."""
        match = _PAIR.fullmatch(text) or _LOOSE_PAIR.fullmatch(text)
        if match is None:
            raise UsageError(
                f"{text!r} is no language pair: write source-target, such as de-en, "
                f"with a region in capitals, such as en-pt-BR"
            )
        return cls(normal_tag(match[1]), normal_tag(match[2]))

    def __str__(self) -> str:
        return f"{self.source}-{self.target}"
