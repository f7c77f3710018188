"""Keyboard accelerators: the `&` of `&File` (Windows, Qt) and the `_` of `_File` (GTK) mark a letter of a label."""

import re
from collections.abc import Sequence
from typing import NamedTuple

from knnmt.text.spans import Span

MARK = re.compile(
    r"(?<![\w&])&(?=[^\W\d_])(?!\w+;)"  # before a word
    r"|(?<=[a-zß-ÿ])&(?=[a-zß-ÿ])(?!\w+;)"  # inside one: E&xit, but not R&D
    r"|(?<!\w)_(?=[^\W\d_]+(?!\w))"
)
LONGEST = 80  # characters of a label


class Accelerator(NamedTuple):
    """The mark of a label, where it stood, and its letter."""

    mark: str
    at: int
    letter: str

    def put(self, text: str) -> tuple[str, int]:
        """A translated label with the mark, and where that is: before the same letter, best at the start of a word, or
        else before the first letter."""
        letter = re.escape(self.letter)
        for pattern in (rf"(?<!\w){letter}", letter, r"[^\W\d_]"):
            if found := re.search(pattern, text, re.IGNORECASE):
                return text[: found.start()] + self.mark + text[found.start() :], found.start()
        return self.mark + text, 0


def accelerator(text: str, spans: Sequence[Span]) -> Accelerator | None:
    """The accelerator of a label; None where there is none, or several: then the signs mean something else."""
    if len(text) > LONGEST or ("&" not in text and "_" not in text):
        return None
    held = [range(span.start, span.end) for span in spans]
    found = [match for match in MARK.finditer(text) if not any(match.start() in span for span in held)]
    if len(found) != 1:
        return None
    at = found[0].start()
    return Accelerator(found[0][0], at, text[at + 1])
