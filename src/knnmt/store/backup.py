"""Backup of a store to one file, and back. The store may be in use: sealed parts never change, and the journal only
grows.

The archive is a tar file: the manifest first, then every sealed file, the tuned settings, and last the journal up to
its last whole record. A backup is the store as of the moment when its journal is read. If a build or `compact`
replaces the parts meanwhile, the backup starts again. Restoring extracts only the files that the manifest names,
verifies all of them, and publishes the store by renaming its folder.
"""

import io
import os
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from knnmt import host
from knnmt.errors import DataError, StoreError, UsageError, writing_to
from knnmt.files import BLOCK, hasher, make_folder, put
from knnmt.store.journal import Journal
from knnmt.store.manifest import (
    MANIFEST,
    TUNED,
    File,
    manifest_bytes,
    read_manifest,
    sealed_files,
    stamp,
)
from knnmt.store.store import Store

ATTEMPTS = 10  # to copy a store that others replace meanwhile
LARGEST = 1 << 28  # bytes of a manifest


@dataclass(frozen=True)
class Archived:
    """What a backup holds."""

    files: int
    size: int  # bytes of the archive


@dataclass(frozen=True)
class Restored:
    """A store that was restored and verified."""

    files: int
    segments: int


class _ReplacedError(Exception):
    """The store was replaced while it was being copied."""


def backup(store: Path, archive: Path) -> Archived:
    """Write a store to an archive, which must not exist; every sealed file is verified while it is copied."""
    if archive.exists():
        raise UsageError(f"{archive} exists already: choose another name")
    part = archive.with_name(f".{archive.name}.part")
    try:
        for attempt in range(1, ATTEMPTS + 1):
            seen = stamp(store)
            try:
                with writing_to(archive):
                    files = _write(store, part)
                break
            except (_ReplacedError, FileNotFoundError, StoreError) as error:
                if stamp(store) == seen and not isinstance(error, _ReplacedError):
                    raise
                if attempt == ATTEMPTS:
                    raise StoreError(f"{store} kept changing while it was copied: try again later") from None
        size = part.stat().st_size
        put(part, archive)
    finally:
        part.unlink(missing_ok=True)
    return Archived(files, size)


def _write(store: Path, archive: Path) -> int:
    """Write an archive, and count its files."""
    manifest = read_manifest(store)
    with tarfile.open(archive, "w") as tar:
        _add(tar, MANIFEST, manifest_bytes(manifest))
        for name, file in sealed_files(manifest).items():
            _add_sealed(tar, store / name, name, file)
        if (store / TUNED).exists():
            _add(tar, TUNED, (store / TUNED).read_bytes())
        _add(tar, manifest.journal, _whole_records(store / manifest.journal))  # last: what was taught meanwhile counts
        return len(tar.getmembers())


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    tar.addfile(_member(name, len(content)), io.BytesIO(content))


def _add_sealed(tar: tarfile.TarFile, path: Path, name: str, file: File) -> None:
    with path.open("rb") as opened:
        if os.fstat(opened.fileno()).st_size != file.size:
            raise StoreError(f"{path} is corrupt: its size does not match")
        reader = _Hashing(opened)
        tar.addfile(_member(name, file.size), reader)
    if reader.hash.hexdigest() != file.checksum:
        raise StoreError(f"{path} is corrupt: its checksum does not match; restore it from an older backup")


class _Hashing:
    """A file that is hashed while it is read."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.hash = file, hasher()

    def read(self, size: int = -1) -> bytes:
        """Read bytes."""
        block = self._file.read(size)
        self.hash.update(block)
        return block


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o644, int(time.time())
    return member


def _whole_records(path: Path) -> bytes:
    """The journal, without half a record at its end; empty where nothing was taught."""
    journal = Journal(path)
    for _ in journal.read():  # a corrupt journal is refused
        pass
    content = path.read_bytes()[: journal.end] if journal.end else b""
    if journal.replaced:
        raise _ReplacedError
    return content


# ------------------------------------------------------------------------------------------------------------ restore


def restore(archive: Path, store: Path) -> Restored:
    """Restore a store from an archive to a folder that must not exist; everything is verified before it is there."""
    if store.exists() or store.is_symlink():
        raise UsageError(f"{store} exists already: restore to another folder, or move it away")
    work = store.with_name(f"{store.name}.restoring")
    with writing_to(store):
        try:
            make_folder(work)
        except FileExistsError:
            raise UsageError(f"{work} is left from a restore that is running or was killed: remove it first") from None
    try:
        with writing_to(store):
            files = _extract(archive, work)
        restored = Restored(files, _verified(work))
        for path in (*work.rglob("*"), work):
            host.sync(path)
        host.replace(work, store)
        host.sync(store.parent)
    except StoreError as error:
        raise DataError(f"{archive} is corrupt: {str(error).replace(str(work), archive.name)}") from error
    finally:
        host.discard(work)
    return restored


def _verified(store: Path) -> int:
    """Read everything and compare it with what was sealed; gives the number of segments."""
    found = Store(store)
    for _ in found.verify():
        pass
    journal = store / found.manifest.journal
    if journal.exists() and len(_whole_records(journal)) < journal.stat().st_size:
        raise StoreError(f"{journal} is corrupt: its last record is not whole")
    return len(found)


def _extract(archive: Path, work: Path) -> int:
    """Extract the files that the manifest names, and no others; count them."""
    try:
        with archive.open("rb") as opened, tarfile.open(fileobj=opened, mode="r:") as tar:
            members = iter(tar)
            first = next(members, None)
            if first is None or first.name != MANIFEST or not first.isreg() or first.size > LARGEST:
                raise DataError(f"{archive} is not an archive of `knnmt backup`")
            _take(tar, first, work / MANIFEST)
            return 1 + _extract_others(tar, members, work, archive)
    except (FileNotFoundError, IsADirectoryError):
        raise UsageError(f"there is no archive at {archive}") from None
    except tarfile.TarError:
        raise DataError(f"{archive} is truncated, or is not an archive of `knnmt backup`") from None


def _extract_others(tar: tarfile.TarFile, members: Iterator[tarfile.TarInfo], work: Path, archive: Path) -> int:
    manifest = read_manifest(work)
    sealed = {name: file.size for name, file in sealed_files(manifest).items()}
    wanted = {*sealed, TUNED, manifest.journal}
    count = 0
    for member in members:
        if member.name not in wanted:
            raise DataError(f"{archive} is corrupt: unexpected or repeated file {member.name!r}")
        wanted.remove(member.name)
        if not member.isreg() or member.size != sealed.get(member.name, member.size):
            raise DataError(f"{archive} is corrupt: {member.name!r} is not a file of the expected size")
        if member.size or member.name in sealed:  # an empty journal: nothing was taught
            _take(tar, member, work / member.name)
        count += 1
    if missing := wanted & set(sealed):
        raise DataError(f"{archive} is truncated: {len(missing)} files are missing")
    return count


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, path: Path) -> None:
    """Write a member to its place; tarfile's own extraction would apply modes, owners and links."""
    path.parent.mkdir(exist_ok=True)
    content = tar.extractfile(member)
    if content is None:
        raise DataError(f"{member.name!r} is not a file")
    with content, path.open("xb") as out:
        while block := content.read(BLOCK):
            out.write(block)
