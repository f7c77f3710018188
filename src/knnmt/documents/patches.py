"""Edits of a text: everything between them stays as it is, to the byte."""

from collections.abc import Iterable
from typing import NamedTuple


class Patch(NamedTuple):
    """Replace `text[start:end]` by `new`; where both are equal, insert it."""

    start: int
    end: int
    new: str


def applied(text: str, patches: Iterable[Patch]) -> list[tuple[str, bool]]:
    """The pieces of the edited text, in order, each with whether it is new.

    Insertions at one position keep the order in which they are given. Equal patches count once.
    """
    pieces: list[tuple[str, bool]] = []
    at = 0
    for start, end, new in sorted(dict.fromkeys(patches), key=lambda patch: (patch.start, patch.end)):
        if start < at:
            raise ValueError(f"two edits overlap at position {start}")
        pieces += ((text[at:start], False), (new, True))
        at = end
    pieces.append((text[at:], False))
    return pieces


def sliced(text: str, start: int, end: int, patches: Iterable[Patch]) -> str:
    """`text[start:end]` with those edits that are inside it."""
    inside = [Patch(a - start, b - start, new) for a, b, new in patches if start <= a and b <= end]
    return "".join(piece for piece, _ in applied(text[start:end], inside))
