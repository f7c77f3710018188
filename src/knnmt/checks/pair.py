"""A text and its translation as the checks see them, and what a check finds."""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from knnmt.text.glossary import Glossary
from knnmt.text.inline import Inline
from knnmt.text.spans import ON, Span, find


class Finding(NamedTuple):
    """Something that a reviewer should look at: the kind of the check, and what is wrong."""

    kind: str
    message: str


@dataclass(frozen=True)
class Side:
    """A text with what is protected in it; `language` is its primary tag, None where it is unknown."""

    inline: Inline
    language: str | None

    @property
    def text(self) -> str:
        """The text, without inline codes."""
        return self.inline.text

    @cached_property
    def spans(self) -> list[Span]:
        """Its protected spans."""
        return find(self.text, ON)

    def raws(self, *kinds: str) -> list[str]:
        """The spans of some kinds as they are written, in order."""
        return [self.text[span.start : span.end] for span in self.spans if span.kind in kinds]

    @cached_property
    def filled(self) -> str:
        """The text with a stand-in for each single code, as `<x/>`, which may show something there."""
        pieces, at = list[str](), 0
        for code in self.inline.codes:
            if code.pair is None:
                pieces += (self.text[at : code.at], "\ufffc")
                at = code.at
        return "".join([*pieces, self.text[at:]])

    @cached_property
    def prose(self) -> str:
        """The text with a stand-in for each protected span but numbers: the rest is words and punctuation."""
        pieces, at = list[str](), 0
        for span in self.spans:
            if span.kind not in ("number", "version"):
                pieces += (self.text[at : span.start], "\ufffc")
                at = span.end
        return "".join([*pieces, self.text[at:]])


@dataclass(frozen=True)
class Pair:
    """A text and its translation."""

    source: Side
    target: Side
    glossary: Glossary | None = None


Check = Callable[[Pair], Iterator[str]]
"""Gives a message for each thing that is wrong with a translation."""


def compared(source: list[str], target: list[str]) -> Iterator[str]:
    """What a translation lacks, and what it has without reason."""
    ours, theirs = Counter(source), Counter(target)
    yield from (f"{raw} is missing" for raw in ours - theirs)
    yield from (f"{raw} is not in the source" for raw in theirs - ours)
