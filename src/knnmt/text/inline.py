"""A text with inline codes: what a document format hands to the translator, and gets back."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class Code(NamedTuple):
    """An inline code of a format: a tag, a placeholder element; not text, kept as it is written."""

    at: int  # the position in the text before which it stands
    raw: str  # as the format writes it
    pair: int | None  # index of its partner in `codes` (opening and closing tag), None if it stands alone
    kept: bool = False  # True: it may not move across text (reserved for the format)


@dataclass(frozen=True, slots=True)
class Inline:
    """A text with inline codes: `text` is plain text as a reader sees it (unescaped), codes ascend by `at`."""

    text: str
    codes: tuple[Code, ...] = ()

    @classmethod
    def plain(cls, text: str) -> "Inline":
        """The text without any code."""
        return cls(text)

    def written(self, escape: Callable[[str], str] = str) -> str:
        """The text as the format writes it: pieces of text escaped, codes raw, in order."""
        pieces: list[str] = []
        start = 0
        for code in self.codes:
            pieces += (escape(self.text[start : code.at]), code.raw)
            start = code.at
        pieces.append(escape(self.text[start:]))
        return "".join(pieces)
