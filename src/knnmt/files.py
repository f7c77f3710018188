"""Files that are written as a whole or not at all, and digests of their content."""

from hashlib import blake2b
from pathlib import Path

from knnmt import host
from knnmt.errors import FULL, UsageError, writing_to

BLOCK = 1 << 24  # bytes that are read at a time for a checksum


def make_folder(path: Path, *, exist_ok: bool = False) -> None:
    """Make a folder; where none can be, as on a read-only disk, say what to do. A full disk is still an `OSError`."""
    try:
        path.mkdir(exist_ok=exist_ok)
    except OSError as error:
        if error.errno in FULL or (isinstance(error, FileExistsError) and not exist_ok):
            raise
        raise UsageError(
            f"cannot make the folder {path}: {error.strerror}; choose a place where folders can be made"
        ) from error


def write_whole(path: Path, content: bytes) -> None:
    """Write a file so that it is there as a whole, on disk, or not at all."""
    temporary = path.with_name(f".{path.name}.part")
    try:
        with writing_to(path):
            temporary.write_bytes(content)
        put(temporary, path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def put(finished: Path, path: Path) -> None:
    """Move a finished file from the same folder to its place, on disk when this returns; what was there is replaced."""
    with writing_to(path):
        host.sync(finished)
    host.replace(finished, path)
    host.sync(path.parent)


def checksum(path: Path) -> str:
    """The digest of a file's content."""
    running = hasher()
    with path.open("rb") as file:
        while block := file.read(BLOCK):
            running.update(block)
    return running.hexdigest()


def digest(content: bytes) -> str:
    """The digest of some bytes."""
    return hasher(content).hexdigest()


def hasher(content: bytes = b"") -> blake2b:
    """A running digest, for content that comes in blocks."""
    return blake2b(content, digest_size=16)
