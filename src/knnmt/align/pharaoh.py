"""Links of other aligners in Pharaoh format: "i-j i-j …", source-target from 0, one line per segment."""

import re
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from knnmt.align.bitext import Bitext, Links
from knnmt.csr import offsets_of
from knnmt.errors import DataError, UsageError

_LINK = rb"[0-9]{1,9}-[0-9]{1,9}"
_LINE = re.compile(rb"\s*(?:" + _LINK + rb"(?:\s+|$))*")


def read_pharaoh(
    path: str | Path, bitext: Bitext, chosen: Sequence[int] | None = None, total: int | None = None
) -> Links:
    """Read the links of a bitext, one line per segment, in any order; duplicates are dropped.

    If the file covers a larger corpus of `total` segments, `chosen` are the segments to read, from 0, ascending.
    """
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path}: no such file")
    total = len(bitext) if total is None else total
    wanted = iter(range(total) if chosen is None else chosen)
    following = next(wanted, None)
    source, target = array("i"), array("i")
    counts: list[int] = []
    sizes = zip(bitext.source_lengths.tolist(), bitext.target_lengths.tolist(), strict=True)
    number = 0
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number > total:
                raise DataError(f"{path}:{number}: more lines than the {total} segments of the corpus")
            if number - 1 != following:
                continue
            following = next(wanted, None)
            points = _points(line, *next(sizes), f"{path}:{number}")
            source.extend(i for _, i in points)
            target.extend(j for j, _ in points)
            counts.append(len(points))
    if number < total:
        raise DataError(f"{path}:{number + 1}: unexpected end of file; the corpus has {total} segments")
    return Links(np.array(source, np.int32), np.array(target, np.int32), offsets_of(np.array(counts, np.int64)))


def _points(line: bytes, n: int, m: int, place: str) -> list[tuple[int, int]]:
    """The linked (target, source) positions of a line, sorted, for a segment of n source and m target tokens."""
    if not _LINE.fullmatch(line):
        wrong = next(entry for entry in line.split() if not re.fullmatch(_LINK, entry))
        raise DataError(f"{place}: invalid link {wrong.decode('utf-8', 'replace')!r}; expected i-j, from 0")
    positions = [int(position) for position in line.replace(b"-", b" ").split()]
    points = sorted(set(zip(positions[1::2], positions[::2], strict=True)))
    for j, i in points:
        if i >= n or j >= m:
            raise DataError(
                f"{place}: link {i}-{j} is out of range for a segment of "
                f"{n} source and {m} target tokens; was another tokenizer used?"
            )
    return points


def write_pharaoh(links: Links, path: str | Path) -> None:
    """Write links, one line per segment."""
    with Path(path).open("w", encoding="ascii", newline="\n") as file:
        file.writelines(pharaoh_lines(links))


def pharaoh_lines(links: Links) -> Iterator[str]:
    """The lines of a Pharaoh file, one per segment."""
    for index in range(len(links)):
        yield " ".join(f"{i}-{j}" for i, j in links.segment(index)) + "\n"
