"""Where a text that is too long may be cut: one way for what is translated and for what is taught."""

import re
from collections.abc import Callable

# best places first: between sentences, clauses, words
CUTS = (re.compile(r"(?<=[.!?…:;])\s+"), re.compile(r"(?<=[,)])\s+"), re.compile(r"\s+"))


def split(text: str, count: Callable[[str], int], limit: int, level: int = 0) -> list[str]:
    """Cut a text into pieces of at most `limit` tokens: between sentences, else clauses, else words, else anywhere."""
    if count(text) <= limit or len(text) < 2:
        return [text]
    if level == len(CUTS):
        middle = len(text) // 2
        return split(text[:middle], count, limit, level) + split(text[middle:], count, limit, level)
    pieces: list[str] = []
    room = 0  # left in the last piece
    for part in CUTS[level].split(text):
        size = count(part)
        if size > limit:
            pieces += split(part, count, limit, level + 1)
            room = 0
        elif size <= room:
            pieces[-1] += " " + part
            room -= size
        else:
            pieces.append(part)
            room = limit - size
    return pieces
