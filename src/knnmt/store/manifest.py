"""The manifest of a store: the one file that says which parts, aligner and journal make it up.

It is JSON that must be, to the byte, what this module would write; nothing in it can run code. A store is published by
renaming its manifest into place, so that whoever opens the folder sees the store before or the one after, never one
between. Format 1 had one part, with the aligner inside, and a journal named after the part; up to format 2, narrow keys
had one number in a byte. Both are read as format 3.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knnmt import host
from knnmt.errors import StoreError
from knnmt.files import checksum, digest, write_whole
from knnmt.store.schema import NARROW, SHARED, expect_size

FORMAT: Literal[3] = 3
MANIFEST = "manifest.json"
ALIGNER, INDEX = "aligner.safetensors", "index.faiss"  # files of a part that are no arrays; the former in format 1
TUNED = "settings.json"  # of retrieval, beside the parts: what was found best for the store
DAMAGED = ".damaged"  # what a repair cut out of a journal: it stays until somebody deletes it
LOCK = "lock"  # what whoever writes to a store holds
LARGEST = 1 << 48  # of a part's sizes: no sum or product of two overflows where one is 0
ALWAYS = ("segments", "entries", "width", "source_vocabulary", "target_vocabulary")  # sizes that every part has
_FILE = re.compile(rf"[a-z0-9_]+\.npy|{re.escape(INDEX)}|{re.escape(ALIGNER)}")

Metric = Literal["squared", "euclidean", "cosine"]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class File(_Record):
    """A file as it was sealed."""

    size: int = Field(ge=0)
    checksum: str = Field(pattern=r"^[0-9a-f]{32}$")


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

    format: Literal[3] = FORMAT
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
    aligner: File | None  # None where links were made elsewhere, or where the first part holds it (format 1)
    journal: str = Field(pattern=r"^journal-[0-9a-f]{16}$")

    @property
    def size(self) -> int:
        """Bytes of all parts and the aligner."""
        files = [file for part in self.parts for file in part.files.values()]
        return sum(file.size for file in (*files, *filter(None, [self.aligner])))


# ------------------------------------------------------------------------------------------------------------- names


def journal_name(parts: Sequence[SealedPart]) -> str:
    """The journal of these parts: other parts number segments in another way, and need another journal."""
    return f"journal-{digest(json.dumps([part.name for part in parts]).encode())[:16]}"


def aligner_name(aligner: File) -> str:
    """The file of an aligner, beside the parts."""
    return f"aligner-{aligner.checksum[:16]}.safetensors"


def sealed_files(manifest: Manifest) -> dict[str, File]:
    """All files as they were sealed, by their paths in the store's folder."""
    files = {f"{part.name}/{name}": file for part in manifest.parts for name, file in part.files.items()}
    aligner = manifest.aligner
    return files if aligner is None else files | {aligner_name(aligner): aligner}


def aligner_of(store: Path, manifest: Manifest) -> tuple[Path, File] | None:
    """Where the aligner of a store is; None where it has none."""
    if manifest.aligner is not None:
        return store / aligner_name(manifest.aligner), manifest.aligner
    first = manifest.parts[0]
    return (store / first.name / ALIGNER, first.files[ALIGNER]) if ALIGNER in first.files else None


def work_folder(store: Path) -> Path:
    """Where a build keeps what it has made so far: beside the store, on the same disk."""
    place = store.resolve()  # "." has no name, and a link may lead to another disk
    return place.parent / f"{place.name}.building"


# ----------------------------------------------------------------------------------------------- reading and writing


def manifest_bytes(manifest: Manifest) -> bytes:
    """The one way to write a manifest; its own checksum comes last."""
    return _signed(manifest.model_dump(mode="json"))


def _signed(content: Any) -> bytes:
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
        raise StoreError(f"{path} is corrupt: it is not the manifest of a datastore") from error
    if isinstance(found, int) and found > FORMAT:
        raise StoreError(
            f"{folder} has format {found} and this knnmt reads up to {FORMAT}: upgrade knnmt, or build the store again"
        )
    try:
        current = _upgraded(content)
        manifest = Manifest.model_validate(current)
        canonical = json.dumps(manifest.model_dump(mode="json")) == json.dumps(current)
        sound = canonical and _signed(content) == written
        json.dumps(content, ensure_ascii=False).encode()  # half a surrogate pair could not be shown
    except (ValidationError, ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} is corrupt: its content is not what a manifest holds") from error
    if not sound:
        raise StoreError(f"{path} is corrupt: its checksum does not match")
    _expect_sound_parts(path, manifest.parts)
    return manifest


def _upgraded(content: Any) -> Any:
    """The content of a manifest as format 3 has it."""
    found = content["format"]
    if type(found) is not int or found not in (1, 2):
        return content
    if found == 1:
        (part,) = content["parts"]
        added = {"aligner": None, "journal": f"journal-{part['name'].removeprefix('part-')}"}
        content = content | {name: value for name, value in added.items() if name not in content}
    parts = [{**part, "sizes": _with_numbers(part["sizes"])} for part in content["parts"]]
    return {**content, "format": FORMAT, "parts": parts}


def _with_numbers(sizes: dict[str, Any]) -> dict[str, Any]:
    """The sizes of a part of format 2 or 1, whose narrow keys have a number in each byte."""
    return sizes | ({"target_numbers": sizes["target_small"]} if "target_small" in sizes else {})


def _expect_sound_parts(path: Path, parts: Sequence[SealedPart]) -> None:
    """Refuse parts with files that no store has, or sizes that do not agree."""
    for part in parts:
        if strange := [name for name in part.files if not _FILE.fullmatch(name)]:
            raise StoreError(f"{path} names a file that no store has: {min(strange)!r}")
        if missing := set(ALWAYS) - set(part.sizes):
            raise StoreError(f"{path} is corrupt: it has no size {min(missing)!r}")
        small = part.sizes.get("target_small", 0)
        if part.sizes.get("target_numbers", 0) not in (small, 2 * small):
            raise StoreError(f"{path} is corrupt: narrow keys of {small} bytes do not have the numbers that it says")
        if any(part.sizes.get(name) != parts[0].sizes.get(name) for name in SHARED - NARROW):
            raise StoreError(f"{path} is corrupt: {part.name} was not made for the same model as {parts[0].name}")
    if len({part.name for part in parts}) < len(parts):
        raise StoreError(f"{path} is corrupt: it names a part twice")


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
        begun = f"its build was interrupted, and what it has done so far is in {work}"
        return f"there is no datastore at {folder} yet: {begun}; run the same command again to resume it"
    if folder.exists():
        return f"{folder} is no datastore: it has no {MANIFEST}"
    return f"there is no datastore at {folder}: make one with `knnmt build`"


# ------------------------------------------------------------------------------------------------ sealing, publishing


def expect_checksum(path: Path, file: File) -> None:
    """Refuse a file whose content is not what was sealed."""
    expect_size(path, file.size)
    if checksum(path) != file.checksum:
        raise StoreError(f"{path} is corrupt: its checksum does not match; copy the store again, or build it again")


def seal_file(path: Path) -> File:
    """Describe a finished file, which is on disk when this returns."""
    host.sync(path)
    return File(size=path.stat().st_size, checksum=checksum(path))


def seal(folder: Path, sizes: Mapping[str, int]) -> SealedPart:
    """Describe the files of a finished part, and name it after their content."""
    paths = sorted(folder.iterdir())
    with ThreadPoolExecutor(host.cores()) as pool:  # hashing and syncing release the interpreter's lock
        files = dict(zip([path.name for path in paths], pool.map(seal_file, paths), strict=True))
    host.sync(folder)
    content = json.dumps({name: file.checksum for name, file in files.items()}).encode()
    return SealedPart(name=f"part-{digest(content)[:16]}", sizes=dict(sorted(sizes.items())), files=files)


def publish(store: Path, manifest: Manifest, made: Mapping[str, Path]) -> None:
    """Make a store what a manifest says, at once; what it held before and the manifest does not name is then removed.

    made: by their names in the store, parts that were sealed and an aligner, wherever they are on the same disk. One
    that is not there any more was moved by an attempt before this one. Parts that the manifest keeps are not among
    them. The journal that it names must be there already, if there is to be one.
    """
    sealed = {part.name: part for part in manifest.parts}
    store.mkdir(exist_ok=True)
    for name, path in made.items():
        place = store / name
        if name in sealed and path.exists() and place.exists() and not _sound(place, sealed[name]):
            shutil.rmtree(place)
        if path.exists() and (name not in sealed or not place.exists()):
            host.replace(path, place)
    host.sync(store)
    write_whole(store / MANIFEST, manifest_bytes(manifest))
    host.sync(store.parent)
    remove_others(store, manifest)


def remove_others(store: Path, manifest: Manifest) -> None:
    """Remove parts, journals and aligners that a store's manifest does not name."""
    sealed = {part.name for part in manifest.parts}
    named = {*sealed, manifest.journal, *(aligner_name(file) for file in filter(None, [manifest.aligner]))}
    for pattern in ("part-*", "journal-*", ".journal-*", "aligner-*"):
        for old in store.glob(pattern):
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
