"""Segments by the whole text of a side: what a translation memory calls a 100% match.

A part keeps a digest of each segment's source and target, sorted, beside the segment's number. A text is found by its
digest and compared as it is, so that two texts with one digest are told apart. White space does not count: texts are
translated as one line.
"""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

Digests = NDArray[np.uint64]
Int32 = NDArray[np.int32]


def one_line(text: str) -> str:
    """A text with one space between words and none around, as it is translated and compared."""
    return " ".join(text.split())


def digest(text: str) -> int:
    """64 bits that stand for a text."""
    return int.from_bytes(blake2b(one_line(text).encode(errors="surrogatepass"), digest_size=8).digest(), "little")


def index(digests: Iterable[int]) -> tuple[Digests, Int32]:
    """Digests of the segments, by their numbers, as a part keeps them: sorted, and the segment of each. (segments,)."""
    found = np.fromiter(digests, np.uint64)
    order = np.argsort(found, kind="stable").astype(np.int32)
    return found[order], order


def arrays_of(side: str, digests: Iterable[int]) -> dict[str, NDArray[Any]]:
    """The same as the arrays of a part."""
    return dict(zip((f"{side}_digests", f"{side}_order"), index(digests), strict=True))


def candidates(digests: Digests, order: Int32, text: str) -> list[int]:
    """The segments whose text has the digest of this one, in their order."""
    wanted = np.uint64(digest(text))
    first, last = np.searchsorted(digests, wanted, "left"), np.searchsorted(digests, wanted, "right")
    numbers: list[int] = order[first:last].tolist()
    return numbers
