"""The arrays of a part: name, number type, shape, and what the values must obey. An array is opened only if it fits.

ARRAYS is filled by `declare`: with what every store has here, and with a system's own arrays in its file. A
part may hold arrays that nobody has declared: their sizes and checksums are compared, and they are never opened.
"""

import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knnmt.csr import rises
from knnmt.errors import StoreError
from knnmt.store import arrays


@dataclass(frozen=True)
class Array:
    """What an array of a part must look like. Shapes are in sizes of the part, such as `entries` or `segments+1`."""

    dtype: str
    shape: tuple[str, ...]
    offsets_into: str | None = None  # values rise from 0 to this size
    below: str | None = None  # values are numbers from 0 to this size, itself left out


ARRAYS: dict[str, Array] = {}
QUANTIZED = {
    "target_keys": ("target_codes", "target_codebooks"),
    "source_keys": ("source_codes", "source_codebooks"),
}  # what stands for an array in a part whose keys are product-quantized
# widths that a build gives all its parts; those of merged stores may differ
NARROW = {"target_small", "target_numbers", "source_small"}
# sizes that all parts of a store share; all others add up
SHARED = {"width", "subspaces", "subwidth", "source_vocabulary", "target_vocabulary"} | NARROW
_TERM = re.compile(r"(?:(\d+)\*)?(\w+)(?:\+(\d+))?")


def declare(arrays: Mapping[str, Array]) -> None:
    """Add arrays to the registry; a name stands for one kind of array only."""
    for name, array in arrays.items():
        if ARRAYS.setdefault(name, array) != array:
            raise ValueError(f"array {name!r} is declared twice: {ARRAYS[name]} and {array}")


def offsets(count: str, into: str) -> Array:
    """Offsets of so many rows into something of that size."""
    return Array("int64", (f"{count}+1",), offsets_into=into)


declare(
    {
        # the texts: source, target, origin and id of each segment, one after the other
        "text": Array("uint8", ("bytes",)),
        "text_offsets": offsets("4*segments", into="bytes"),
        # to find whole texts: digests of those of a side, sorted, and the segment of each
        "source_digests": Array("uint64", ("segments",)),
        "source_order": Array("int32", ("segments",), below="segments"),
        "target_digests": Array("uint64", ("segments",)),
        "target_order": Array("int32", ("segments",), below="segments"),
        # one entry a target token, `</s>` included, in corpus order: the token, and the state that predicts it
        "target_ids": Array("int32", ("entries",), below="target_vocabulary"),
        "target_offsets": offsets("segments", into="entries"),
        "target_keys": Array("float16", ("entries", "width")),
        "target_norms": Array("float32", ("entries",)),  # squared lengths of the keys
        "target_codes": Array("uint8", ("entries", "subspaces")),
        "target_codebooks": Array("float32", ("subspaces", "256", "subwidth")),
        # source tokens that have links, sorted by type, then place in the corpus
        "type_offsets": offsets("source_vocabulary", into="tokens"),
        "link_offsets": offsets("tokens", into="links"),
        "link_entries": Array("int32", ("links",), below="entries"),
        "source_keys": Array("float16", ("tokens", "width")),
        "source_norms": Array("float32", ("tokens",)),
        "source_codes": Array("uint8", ("tokens", "subspaces")),
        "source_codebooks": Array("float32", ("subspaces", "256", "subwidth")),
        # the links of each segment, source and target position, where they were made elsewhere; sorted by target
        "given_offsets": offsets("segments", into="links"),
        "given_links": Array("int32", ("links", "2")),
    }
)


# ------------------------------------------------------------------------------------------------------------ sizes


def shape_of(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that an array has in a part of these sizes."""
    return tuple(_size(term, sizes) for term in array.shape)


def sizes_of(folder: Path, known: Mapping[str, int]) -> dict[str, int]:
    """The sizes of a part, from the shapes of its arrays; `known`: those that no array may give, as vocabularies."""
    sizes = dict(known)
    for name, array in ARRAYS.items():
        path = folder / f"{name}.npy"
        if not path.exists():
            continue
        shape = arrays.read(path).shape
        for term, length in zip(array.shape, shape, strict=True):
            factor, size, more = _parsed(term)
            if not size.isdigit():
                sizes.setdefault(size, (length - more) // factor)
        if shape_of(array, sizes) != shape:
            raise ValueError(f"{path} has shape {shape}, not {shape_of(array, sizes)}: {', '.join(array.shape)}")
    return dict(sorted(sizes.items()))


def _parsed(term: str) -> tuple[int, str, int]:
    """`4*segments+1` as (4, "segments", 1)."""
    factor, name, more = _TERM.fullmatch(term).groups()  # type: ignore[union-attr]
    return int(factor or 1), name, int(more or 0)


def _size(term: str, sizes: Mapping[str, int]) -> int:
    """The value of `entries`, `segments+1`, `4*segments+1` or `256`."""
    factor, name, more = _parsed(term)
    if not name.isdigit() and name not in sizes:
        raise StoreError(f"the manifest is corrupt: it has no size {name!r}")
    return factor * (int(name) if name.isdigit() else sizes[name]) + more


# ---------------------------------------------------------------------------------------------------------- opening


def open_array(path: Path, name: str, sizes: Mapping[str, int]) -> NDArray[Any]:
    """Map an array of a part into memory, after its size, header and values were checked."""
    array = ARRAYS[name]
    shape = shape_of(array, sizes)
    head = arrays.header(array.dtype, shape)
    items = int(np.prod(shape, dtype=object))
    expect_size(path, len(head) + items * np.dtype(array.dtype).itemsize)
    with path.open("rb") as file:
        if file.read(len(head)) != head:
            raise StoreError(f"{path} is corrupt: its header is not that of {array.dtype} {shape}")
    # copy-on-write: torch takes only arrays that may be written, and nothing ever is
    found = arrays.mapped(path, array.dtype, shape, "c")
    if array.offsets_into is not None:
        total = _size(array.offsets_into, sizes)
        if not rises(found, total):
            raise StoreError(f"{path} is corrupt: its offsets do not rise from 0 to {total}")
    # as unsigned numbers, negative ones are beyond all bounds: one pass over what may be gigabytes
    if array.below is not None and items and found.view(f"u{found.itemsize}").max() >= _size(array.below, sizes):
        raise StoreError(f"{path} is corrupt: it holds numbers outside 0 to {_size(array.below, sizes) - 1}")
    return found


def expect_size(path: Path, size: int) -> None:
    """Refuse a file that is missing or was cut short."""
    try:
        found = path.stat()
    except OSError:
        raise StoreError(f"{path} is missing: copy the whole store again, or build it again") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is corrupt: it is not a regular file")
    if found.st_size != size:
        raise StoreError(f"{path} is corrupt: it has {found.st_size:,} bytes instead of {size:,}")
