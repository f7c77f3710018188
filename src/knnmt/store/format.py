"""The datastore on disk: a folder with a manifest, which names sealed parts, each a folder of plain arrays.

ARRAYS is the format: every array's name, number type, shape and what its values must obey. Nothing here can run code
when it is read: arrays are `.npy` files whose header must be, to the byte, the one that the manifest implies, and the
manifest is JSON that must be, to the byte, what this module would write. A store is published by renaming its
manifest into place, so that whoever opens the folder sees the store before or the one after, never one between.
"""

import json
import os
import re
import shutil
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knnmt import host
from knnmt.align.bitext import rises
from knnmt.errors import StoreError, writing_to
from knnmt.store import arrays

FORMAT = 1
MANIFEST = "manifest.json"
ALIGNER, INDEX = "aligner.safetensors", "index.faiss"  # the files of a part that are no arrays
TUNED = "settings.json"  # of retrieval, beside the part: what was found best for the store
DAMAGED = ".damaged"  # what a repair cut out of a journal: it stays until somebody deletes it
LOCK = "lock"  # what whoever writes to a store holds
BLOCK = 1 << 24  # bytes that are read at a time for a checksum
LARGEST = 1 << 48  # of a part's sizes: no sum or product of two overflows where one is 0

Metric = Literal["squared", "euclidean", "cosine"]


@dataclass(frozen=True)
class Array:
    """What an array of a part must look like. Shapes are in sizes of the part, such as `entries` or `segments+1`."""

    dtype: str
    shape: tuple[str, ...]
    offsets_into: str | None = None  # values rise from 0 to this size
    below: str | None = None  # values are numbers from 0 to this size, itself left out


def _offsets(count: str, into: str) -> Array:
    return Array("int64", (f"{count}+1",), offsets_into=into)


ARRAYS = {
    # the texts: source, target, origin and id of each segment, one after the other
    "text": Array("uint8", ("bytes",)),
    "text_offsets": _offsets("4*segments", into="bytes"),
    # to find whole texts: digests of those of a side, sorted, and the segment of each
    "source_digests": Array("uint64", ("segments",)),
    "source_order": Array("int32", ("segments",), below="segments"),
    "target_digests": Array("uint64", ("segments",)),
    "target_order": Array("int32", ("segments",), below="segments"),
    # one entry a target token, `</s>` included, in corpus order: the token, and the state that predicts it
    "target_ids": Array("int32", ("entries",), below="target_vocabulary"),
    "target_offsets": _offsets("segments", into="entries"),
    "target_keys": Array("float16", ("entries", "width")),
    "target_norms": Array("float32", ("entries",)),  # squared lengths of the keys
    "target_codes": Array("uint8", ("entries", "subspaces")),
    "target_codebooks": Array("float32", ("subspaces", "256", "subwidth")),
    # source tokens that have links, sorted by type, then cluster, then place in the corpus
    "type_offsets": _offsets("source_vocabulary", into="tokens"),
    "link_offsets": _offsets("tokens", into="links"),
    "link_entries": Array("int32", ("links",), below="entries"),
    "source_keys": Array("float16", ("tokens", "width")),
    "source_norms": Array("float32", ("tokens",)),
    "source_codes": Array("uint8", ("tokens", "subspaces")),
    "source_codebooks": Array("float32", ("subspaces", "256", "subwidth")),
    # the links of each segment, source and target position, where they were made elsewhere; sorted by target
    "given_offsets": _offsets("segments", into="links"),
    "given_links": Array("int32", ("links", "2")),
    # clusters of a type's tokens: the means of both sides, and their entries nearest to the target mean, ranked
    "cluster_offsets": _offsets("source_vocabulary", into="clusters"),
    "cluster_starts": _offsets("clusters", into="tokens"),
    "cluster_source": Array("float16", ("clusters", "width")),
    "cluster_target": Array("float16", ("clusters", "width")),
    "ranking_offsets": _offsets("clusters", into="ranked"),
    "ranking_entries": Array("int32", ("ranked",), below="entries"),
    "ranking_tokens": Array("int32", ("ranked",), below="target_vocabulary"),
    "ranking_distances": Array("float32", ("ranked",)),  # squared L2
    # prototypes: links of one source type and one target token, gathered by their keys; means of both sides in bytes
    "proto_offsets": _offsets("source_vocabulary", into="prototypes"),
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
    "segment_starts": _offsets("segments", into="tokens"),
    "segment_tokens": Array("int32", ("tokens",), below="tokens"),
    # above many clusters of one type, a second level: ranges of clusters and their means
    "coarse_offsets": _offsets("source_vocabulary", into="coarse"),
    "coarse_ranges": Array("int64", ("coarse", "2"), below="clusters+1"),
    "coarse_source": Array("float16", ("coarse", "width")),
}
FILES = {ALIGNER, INDEX, *(f"{name}.npy" for name in ARRAYS)}
_TERM = re.compile(r"(?:(\d+)\*)?(\w+)(?:\+(\d+))?")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class File(_Record):
    """A file of a part as it was sealed."""

    size: int = Field(ge=0)
    checksum: str


class SealedPart(_Record):
    """A part as the manifest knows it: its folder, its sizes, its files."""

    name: str = Field(pattern=r"^part-[0-9a-f]{16}$")
    sizes: dict[str, Annotated[int, Field(ge=0, le=LARGEST)]]
    files: dict[str, File]


class FrequentType(_Record):
    """A source token type that occurs often, for people to read."""

    piece: str
    tokens: int


class Manifest(_Record):
    """What a store is made of and what it was made with."""

    format: int = Field(default=FORMAT, ge=FORMAT, le=FORMAT)
    made_by: str
    plan: str  # digest of everything that the result depends on
    model: str  # its name, for people; the fingerprints decide
    model_fingerprint: str
    tokenizer_fingerprint: str
    languages: str
    key: Literal["ffn_input", "output"]
    metric: Metric
    scale: float  # median squared distance of two random keys: temperatures are fractions of it
    settings: dict[str, Any]
    kept: int  # segments that cleaning let through
    dropped: dict[str, int]
    frequent_types: list[FrequentType]
    parts: list[SealedPart] = Field(min_length=1)

    @property
    def size(self) -> int:
        """Bytes of all files but the manifest."""
        return sum(file.size for part in self.parts for file in part.files.values())


# ------------------------------------------------------------------------------------------------ the manifest


def manifest_bytes(manifest: Manifest) -> bytes:
    """The one way to write a manifest; its own checksum comes last."""
    content = manifest.model_dump(mode="json")
    own = digest(json.dumps(content, allow_nan=False).encode())
    return json.dumps({"knnmt": content, "checksum": own}, indent=1).encode() + b"\n"


def read_manifest(folder: Path) -> Manifest:
    """The manifest of a store, checked."""
    path = folder / MANIFEST
    try:
        written = path.read_bytes()
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        raise StoreError(_no_store(folder)) from None
    try:
        content = json.loads(written)["knnmt"]
        found = content["format"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: it is no manifest of a datastore") from error
    if isinstance(found, int) and found > FORMAT:
        raise StoreError(
            f"{folder} has format {found} and this knnmt reads up to {FORMAT}: upgrade knnmt, or build the store again"
        )
    try:
        manifest = Manifest.model_validate(content)
        canonical = manifest_bytes(manifest)
        json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair could not be shown
    except (ValidationError, ValueError, RecursionError) as error:
        raise StoreError(f"{path} is damaged: its content is not what a manifest holds") from error
    if canonical != written:
        raise StoreError(f"{path} is damaged: its checksum does not fit")
    for part in manifest.parts:
        if strange := set(part.files) - FILES:
            raise StoreError(f"{path} names a file that no store has: {min(strange)!r}")
        if missing := SIZES - set(part.sizes):
            raise StoreError(f"{path} is damaged: it has no size {min(missing)!r}")
    return manifest


def stamp(folder: Path) -> tuple[int, int, int]:
    """What tells a manifest from one that took its place, without reading it."""
    try:
        found = (folder / MANIFEST).stat()
    except OSError:
        raise StoreError(_no_store(folder)) from None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _no_store(folder: Path) -> str:
    work = work_folder(folder)
    if work.exists():
        begun = f"a build of it was interrupted, and what it has done is in {work}"
        return f"there is no datastore at {folder} yet: {begun}; give the same command again to finish it"
    if folder.exists():
        return f"{folder} is no datastore: it has no {MANIFEST}"
    return f"there is no datastore at {folder}: make one with `knnmt build`"


def journal_of(store: Path, part: SealedPart) -> Path:
    """What was taught and removed since the part was sealed."""
    return store / f"journal-{part.name.removeprefix('part-')}"


def work_folder(store: Path) -> Path:
    """Where a build keeps what it has made so far: beside the store, on the same disk."""
    place = store.resolve()  # "." has no name, and a link may lead to another disk
    return place.parent / f"{place.name}.building"


# ---------------------------------------------------------------------------------------------- arrays and files


def shape_of(array: Array, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that an array has in a part of these sizes."""
    return tuple(_size(term, sizes) for term in array.shape)


def _size(term: str, sizes: Mapping[str, int]) -> int:
    """The value of `entries`, `segments+1`, `4*segments+1` or `256`."""
    factor, name, more = _TERM.fullmatch(term).groups()  # type: ignore[union-attr]
    return int(factor or 1) * (int(name) if name.isdigit() else sizes[name]) + int(more or 0)


def _names(array: Array) -> set[str]:
    """The sizes that an array is checked by."""
    terms = (*array.shape, array.offsets_into or "1", array.below or "1")
    return {name for term in terms if not (name := _TERM.fullmatch(term)[2]).isdigit()}  # type: ignore[index]


SIZES = {name for array in ARRAYS.values() for name in _names(array)}


def open_array(path: Path, name: str, sizes: Mapping[str, int]) -> NDArray[Any]:
    """Map an array of a part into memory, after its size, header and values were checked."""
    array = ARRAYS[name]
    shape = shape_of(array, sizes)
    head = arrays.header(array.dtype, shape)
    items = int(np.prod(shape, dtype=object))
    expect_size(path, len(head) + items * np.dtype(array.dtype).itemsize)
    with path.open("rb") as file:
        if file.read(len(head)) != head:
            raise StoreError(f"{path} is damaged: its header is not that of {array.dtype} {shape}")
    # copy-on-write: torch takes only arrays that may be written, and nothing ever is
    found = arrays.mapped(path, array.dtype, shape, "c")
    if array.offsets_into is not None:
        total = _size(array.offsets_into, sizes)
        if not (found.min() >= 0 and found.max() <= total and rises(found, total)):
            raise StoreError(f"{path} is damaged: its offsets do not rise from 0 to {total}")
    if array.below is not None and items and not (found.min() >= 0 and found.max() < _size(array.below, sizes)):
        raise StoreError(f"{path} is damaged: it holds numbers outside 0 to {_size(array.below, sizes) - 1}")
    return found


def expect_size(path: Path, size: int) -> None:
    """Refuse a file that is missing or was cut short."""
    try:
        found = path.stat()
    except OSError:
        raise StoreError(f"{path} is missing: copy the whole store again, or build it again") from None
    if not stat.S_ISREG(found.st_mode):
        raise StoreError(f"{path} is damaged: it is no file")
    if found.st_size != size:
        raise StoreError(f"{path} is damaged: it has {found.st_size:,} bytes instead of {size:,}")


def checksum(path: Path) -> str:
    """The digest of a file's content."""
    running = blake2b(digest_size=16)
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            running.update(block)
    return running.hexdigest()


def expect_checksum(path: Path, file: File) -> None:
    """Refuse a file whose content is not what was sealed."""
    expect_size(path, file.size)
    if checksum(path) != file.checksum:
        raise StoreError(f"{path} is damaged: its checksum does not fit; copy the store again, or build it again")


def digest(content: bytes) -> str:
    """A short digest of some bytes."""
    return blake2b(content, digest_size=16).hexdigest()


# -------------------------------------------------------------------------------------------------- publishing


def seal(folder: Path, sizes: Mapping[str, int]) -> SealedPart:
    """Describe the files of a finished part, and name it after their content."""
    files = {}
    for path in sorted(folder.iterdir()):
        host.sync(path)
        files[path.name] = File(size=path.stat().st_size, checksum=checksum(path))
    host.sync(folder)
    content = json.dumps({name: file.checksum for name, file in files.items()}).encode()
    return SealedPart(name=f"part-{digest(content)[:16]}", sizes=dict(sorted(sizes.items())), files=files)


def publish(part: Path, manifest: Manifest, store: Path) -> None:
    """Make a sealed part the content of a store, at once; what the store held before is removed after that."""
    sealed = manifest.parts[-1]
    place = store / sealed.name
    store.mkdir(exist_ok=True)
    if part.exists():  # else an earlier attempt came as far as this
        if place.exists() and not _sound(place, sealed):
            shutil.rmtree(place)
        if not place.exists():
            host.replace(part, place)
    host.sync(store)
    write_whole(store / MANIFEST, manifest_bytes(manifest))
    host.sync(store.parent)
    named = {name for part in manifest.parts for name in (part.name, journal_of(store, part).name)}
    for old in (*store.glob("part-*"), *store.glob("journal-*")):
        if old.name not in named and not old.name.endswith(DAMAGED):
            host.discard(old)  # what has to stay, since a reader has it open, goes when the next one is published


def _sound(folder: Path, part: SealedPart) -> bool:
    """Whether a folder holds just this part."""
    try:
        for name, file in part.files.items():
            expect_checksum(folder / name, file)
    except StoreError:
        return False
    return {path.name for path in folder.iterdir()} == set(part.files)


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole, on disk, or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    with writing_to(path), temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    host.replace(temporary, path)
    host.sync(path.parent)
