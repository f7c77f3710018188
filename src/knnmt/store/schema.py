"""The arrays of a part: name, number type, shape, and what the values must obey. An array is opened only if it fits.

ARRAYS is filled by `declare`: with what every store has here, and with the arrays of a system where that is defined. A
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
# sizes that all parts of a store share; all others add up
SHARED = {"width", "subspaces", "subwidth", "source_vocabulary", "target_vocabulary", "target_small", "source_small"}
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
        # clusters of a type's tokens: the means of both sides, and their entries nearest to the target mean, ranked
        "cluster_offsets": offsets("source_vocabulary", into="clusters"),
        "cluster_starts": offsets("clusters", into="tokens"),
        "cluster_members": Array("int32", ("tokens",), below="tokens"),  # rows of tokens, cluster by cluster, rising
        "cluster_source": Array("float16", ("clusters", "width")),
        "cluster_target": Array("float16", ("clusters", "width")),
        "ranking_offsets": offsets("clusters", into="ranked"),
        "ranking_entries": Array("int32", ("ranked",), below="entries"),
        "ranking_tokens": Array("int32", ("ranked",), below="target_vocabulary"),
        "ranking_distances": Array("float32", ("ranked",)),  # squared L2
        # prototypes: links of one source type and one target token, gathered by their keys; means of both sides, int8
        "proto_offsets": offsets("source_vocabulary", into="prototypes"),
        "proto_tokens": Array("int32", ("prototypes",), below="target_vocabulary"),
        "proto_counts": Array("int32", ("prototypes",)),  # entries that each stands for
        "proto_entries": Array("int32", ("prototypes", "3"), below="entries"),  # those nearest to its mean
        "proto_members": Array("int32", ("members",), below="entries"),  # all of them, one prototype after the other
        "proto_source": Array("int8", ("prototypes", "width")),
        "proto_source_norms": Array("float32", ("prototypes",)),
        "proto_source_steps": Array("float32", ("2", "width")),  # of each number: its middle, and what 1 stands for
        "proto_target": Array("int8", ("prototypes", "width")),
        "proto_target_norms": Array("float32", ("prototypes",)),
        "proto_target_steps": Array("float32", ("2", "width")),
        # for `similar`: keys projected to few whole numbers, each of a byte, and the source tokens of each segment
        "small_target": Array("int8", ("entries", "target_small")),
        "small_target_middle": Array("float32", ("target_small",)),
        "small_target_step": Array("float32", ("1",)),
        "small_target_projection": Array("float32", ("width", "target_small")),
        "small_source": Array("int8", ("tokens", "source_small")),
        "small_source_middle": Array("float32", ("source_small",)),
        "small_source_step": Array("float32", ("1",)),
        "small_source_projection": Array("float32", ("width", "source_small")),
        "token_segments": Array("int32", ("tokens",), below="segments"),
        "token_shares": Array("int16", ("tokens",)),  # what each adds to its segment's score
        "type_segments": Array("int32", ("source_vocabulary",)),  # how many segments have a token of each type
        "segment_starts": offsets("segments", into="tokens"),
        "segment_tokens": Array("int32", ("tokens",), below="tokens"),
        # above many clusters of one type, a second level: ranges of clusters and their means
        "coarse_offsets": offsets("source_vocabulary", into="coarse"),
        "coarse_ranges": Array("int64", ("coarse", "2"), below="clusters+1"),
        "coarse_source": Array("float16", ("coarse", "width")),
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
        if not (found.min() >= 0 and found.max() <= total and rises(found, total)):
            raise StoreError(f"{path} is corrupt: its offsets do not rise from 0 to {total}")
    if array.below is not None and items and not (found.min() >= 0 and found.max() < _size(array.below, sizes)):
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
