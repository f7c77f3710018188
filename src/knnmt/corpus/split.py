"""Where a text that is too long may be cut: one way for what is translated and for what is taught."""

import re
from collections.abc import Callable, Sequence

# best places first: between sentences, clauses, words
CUTS = (re.compile(r"(?<=[.!?…:;])\s+"), re.compile(r"(?<=[,)])\s+"), re.compile(r"\s+"))


def split(text: str, sizes: Callable[[Sequence[str]], list[int]], limit: int, level: int = 0) -> list[str]:
    """Cut a text into pieces of at most `limit` tokens: between sentences, else clauses, else words, else anywhere.

    `sizes` counts the tokens of texts.
    """
    if len(text) < 2 or sizes([text])[0] <= limit:
        return [text]
    if level == len(CUTS):
        middle = len(text) // 2
        return split(text[:middle], sizes, limit, level) + split(text[middle:], sizes, limit, level)
    pieces: list[str] = []
    room = 0  # left in the last piece
    parts = CUTS[level].split(text)
    for part, size in zip(parts, sizes(parts), strict=True):
        if size > limit:
            pieces += split(part, sizes, limit, level + 1)
            room = 0
        elif size <= room:
            pieces[-1] += " " + part
            room -= size
        else:
            pieces.append(part)
            room = limit - size
    return pieces
