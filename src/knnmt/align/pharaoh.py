"""Links made elsewhere: Pharaoh files, "i-j i-j …", source-target from 0, one line a segment."""

import re
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from knnmt.align.bitext import Bitext, Links, offsets_of
from knnmt.errors import DataError, UsageError

_LINK = rb"[0-9]{1,9}-[0-9]{1,9}"
_LINE = re.compile(rb"\s*(?:" + _LINK + rb"(?:\s+|$))*")


def read_pharaoh(path: str | Path, bitext: Bitext) -> Links:
    """Read the links of a bitext, a line a segment, empty where it has none; any order, repeats are dropped."""
    path = Path(path)
    if not path.is_file():
        raise UsageError(f"{path}: there is no such file of links")
    source, target = array("i"), array("i")
    counts: list[int] = []
    sizes = zip(bitext.source_lengths.tolist(), bitext.target_lengths.tolist(), strict=True)
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if number > len(bitext):
                raise DataError(f"{path}, line {number}: more lines than the {len(bitext)} segments of the corpus")
            if not _LINE.fullmatch(line):
                wrong = next(entry for entry in line.split() if not re.fullmatch(_LINK, entry))
                shown = wrong.decode("utf-8", "replace")
                raise DataError(f"{path}, line {number}: {shown!r} is no link; write i-j, from 0")
            positions = [int(position) for position in line.replace(b"-", b" ").split()]
            points = sorted(set(zip(positions[1::2], positions[::2], strict=True)))
            n, m = next(sizes)
            for j, i in points:
                if i >= n or j >= m:
                    raise DataError(
                        f"{path}, line {number}: link {i}-{j} is outside the segment, "
                        f"which has {n} source and {m} target tokens; was another tokenizer used?"
                    )
                source.append(i)
                target.append(j)
            counts.append(len(points))
    if len(counts) < len(bitext):
        raise DataError(f"{path}, line {len(counts) + 1}: the file ends, but the corpus has {len(bitext)} segments")
    return Links(np.array(source, np.int32), np.array(target, np.int32), offsets_of(np.array(counts, np.int64)))


def write_pharaoh(links: Links, path: str | Path) -> None:
    """Write links, one line a segment."""
    with Path(path).open("w", encoding="ascii", newline="\n") as file:
        file.writelines(pharaoh_lines(links))


def pharaoh_lines(links: Links) -> Iterator[str]:
    """Give the lines of a Pharaoh file, one a segment."""
    for index in range(len(links)):
        yield " ".join(f"{i}-{j}" for i, j in links.segment(index)) + "\n"
