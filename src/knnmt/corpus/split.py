"""Splitting texts that are too long for the model, the same way for translation and for teaching."""

import itertools
import re
from collections.abc import Callable, Sequence

# best first: between sentences, clauses, words
CUTS = (re.compile(r"(?<=[.!?…:;])\s+"), re.compile(r"(?<=[,)])\s+"), re.compile(r"\s+"))


def split(text: str, sizes: Callable[[Sequence[str]], list[int]], limit: int, level: int = 0) -> list[str]:
    """Split a text into pieces of at most `limit` tokens: between sentences, else clauses, else words, else anywhere.

    `sizes` counts the tokens of texts.
    """
    if len(text) < 2 or sizes([text])[0] <= limit:
        return [text]
    if level == len(CUTS):
        return _halved(text, sizes, limit)
    pieces: list[str] = []
    room = 0  # left in the last piece
    parts = CUTS[level].split(text)
    distinct = list(dict.fromkeys(parts))  # tokenized in one call, each once
    known = dict(zip(distinct, sizes(distinct), strict=True))
    for part in parts:
        size = known[part]
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


def _halved(text: str, sizes: Callable[[Sequence[str]], list[int]], limit: int) -> list[str]:
    """Halve a text until no piece is too long."""
    pieces, fitting = [text], set[str]()
    while unknown := [piece for piece in dict.fromkeys(pieces) if len(piece) > 1 and piece not in fitting]:
        fitting |= {piece for piece, size in zip(unknown, sizes(unknown), strict=True) if size <= limit}
        halves = (
            [piece] if piece in fitting or len(piece) < 2 else [piece[: len(piece) // 2], piece[len(piece) // 2 :]]
            for piece in pieces
        )
        pieces = list(itertools.chain.from_iterable(halves))
    return pieces
