"""A term of a glossary, where it is found in a text, and what became of it in a translation."""

from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True)
class Term:
    """An entry of a glossary: what a source term is to be in the target language.

    A `*` before or behind the source term matches inside longer words: `*verzeichnis` also finds «Stammverzeichnis».
    """

    source: str
    target: str  # preferred
    alternatives: tuple[str, ...] = ()  # other translations that are as good
    case: bool = False  # both sides are matched only in the case in which they are written
    pos: str = ""  # noun, verb or adjective: which endings its words have
    forbidden: tuple[str, ...] = ()  # target words that must not translate it
    line: int = 0  # of the file, from 1

    @property
    def targets(self) -> tuple[str, ...]:
        """All translations that are right, the preferred one first."""
        return (self.target, *self.alternatives)


class Found(NamedTuple):
    """A term in a source text."""

    term: Term
    start: int
    end: int
    protected: bool = False  # inside a placeholder, code or the like, which is not translated


class TermUse(NamedTuple):
    """What became of a term that occurs in a source text."""

    source: str  # as the glossary has it
    target: str
    used: bool
    reason: str = ""  # why it is not used
