"""An append-only file of records: each is on disk as a whole when `append` returns, or not there at all.

A record is its length, the length's digest, the content's digest, and the content. What a crash or a full disk leaves
at the end of the file, half a record, was never acknowledged: readers skip it and the next writer truncates it.
Anything else whose digest does not fit is corrupt and refused; `repair` cuts it out and keeps all other records.
"""

import contextlib
import itertools
import mmap
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

from knnmt.errors import StoreError
from knnmt.files import write_whole
from knnmt.host import sync
from knnmt.store.manifest import DAMAGED

MAGIC = b"knnmt journal 1\n"
_HEAD = struct.Struct("<Q8s16s")

Content = bytes | mmap.mmap


class Journal:
    """A journal, of which everything up to `end` has been read here."""

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, 0
        self._file: int | None = None  # the number of the file that was read

    @property
    def replaced(self) -> bool:
        """Whether another file stands in its place, by a repair: what was read of the old one counts no more."""
        with contextlib.suppress(FileNotFoundError):
            found = self.path.stat()
            return self._file is not None and (found.st_ino != self._file or found.st_size < self.end)
        return False

    def read(self) -> Iterator[bytes]:
        """The records that were written since the last time; none, as long as there is no file."""
        try:
            with self.path.open("rb") as file:
                number = os.fstat(file.fileno()).st_ino
                if self._file not in (None, number):  # replaced a moment ago
                    return
                file.seek(self.end)
                new = file.read()
        except FileNotFoundError:
            return
        self._file, at = number, 0
        if not self.end:
            if not new.startswith(MAGIC):
                if not _never_begun(new):
                    raise self._corrupt("invalid file header")
                return
            self.end = at = len(MAGIC)
        while (stop := _ends(new, at)) is not None:
            if not _sound(new, at, stop):
                if stop == len(new):  # the last one: its pages never reached the disk
                    return
                raise self._corrupt(f"checksum mismatch in the record at byte {self.end}")
            self.end += stop - at
            yield new[at + _HEAD.size : stop]
            at = stop
        if not _unfinished(new, at):
            raise self._corrupt(f"invalid record header at byte {self.end}")

    def _corrupt(self, what: str) -> StoreError:
        return StoreError(
            f"{self.path} is corrupt: {what}; run `knnmt repair {self.path.parent}` to keep the intact records"
        )

    def append(self, content: bytes) -> None:
        """Write a record after all others, which must have been read; the caller is the only writer.

        Where that fails the file ends where it ended before, or, if it cannot even be cut, in half a record.
        """
        new = not self.end
        record = _record(content)
        # no buffer: what is left in one after a failure would be written when the file is closed
        file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0), 0o666)
        try:
            os.ftruncate(file, self.end)
            left = memoryview((MAGIC if new else b"") + record)
            while left:
                left = left[os.write(file, left) :]
            os.fsync(file)
            self._file = os.fstat(file).st_ino
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self.end)
            raise
        finally:
            os.close(file)
        if new:
            sync(self.path.parent)
        self.end += (len(MAGIC) if new else 0) + len(record)

    def rewrite(self, contents: Iterable[bytes]) -> None:
        """Put other records into the place of all, which must have been read; the caller is the only writer."""
        whole = MAGIC + b"".join(map(_record, contents))
        write_whole(self.path, whole)
        self._file, self.end = self.path.stat().st_ino, len(whole)


# ------------------------------------------------------------------------------------------------------------- repair


@dataclass(frozen=True)
class Cut:
    """Bytes of a journal that are no record; `content` is that of a corrupt record, if they are one."""

    start: int
    size: int
    content: bytes | None = None


@dataclass(frozen=True)
class Repaired:
    """What a repair kept, what it cut, and the file that has what was cut; none where nothing is corrupt."""

    records: int
    cuts: tuple[Cut, ...] = ()
    saved: Path | None = None


def repair(path: Path) -> Repaired:
    """Cut corrupt records out of a journal; every intact record stays, also those behind.

    The caller is the only writer. What is cut is saved beside the journal first. Half a record at the end is no fault.
    """
    if not path.exists() or not path.stat().st_size:
        return Repaired(0)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as whole:
        sound, cuts = _parted(whole)
        if not cuts:
            return Repaired(len(sound))
        saved = _free(path)
        write_whole(saved, b"".join(whole[cut.start : cut.start + cut.size] for cut in cuts))
        write_whole(path, MAGIC + b"".join(whole[start:stop] for start, stop in sound))
    return Repaired(len(sound), tuple(cuts), saved)


def _parted(whole: mmap.mmap) -> tuple[list[tuple[int, int]], list[Cut]]:
    """Where the intact records begin and end, and what is corrupt between and behind them."""
    sound: list[tuple[int, int]] = []
    cuts: list[Cut] = []
    at, size = len(MAGIC), len(whole)
    if whole[: len(MAGIC)] != MAGIC:
        if _never_begun(whole[: len(MAGIC) + 1]):
            return [], []
        cuts.append(Cut(0, min(size, len(MAGIC))))
    while at < size:
        stop = _ends(whole, at)
        if stop is not None and _sound(whole, at, stop):
            sound.append((at, stop))
        elif stop is not None:
            cuts.append(Cut(at, stop - at, whole[at + _HEAD.size : stop]))
        else:
            stop = _next(whole, at)
            if stop < size or not _unfinished(whole, at):
                cuts.append(Cut(at, stop - at))
        at = stop
    return sound, cuts


def _never_begun(whole: bytes) -> bool:
    """Whether a file without a header is one in which nothing was ever acknowledged."""
    return len(whole) <= len(MAGIC) and MAGIC.startswith(whole.rstrip(b"\0"))


def _ends(whole: Content, at: int) -> int | None:
    """Where the record that begins here ends; None where there is none, or only half of it."""
    if at + _HEAD.size > len(whole):
        return None
    length, of_length, _ = _HEAD.unpack_from(whole, at)
    stop: int = at + _HEAD.size + length
    return stop if stop <= len(whole) and _digest(struct.pack("<Q", length), 8) == of_length else None


def _sound(whole: Content, at: int, stop: int) -> bool:
    expected: bytes = _HEAD.unpack_from(whole, at)[2]
    return _digest(whole[at + _HEAD.size : stop], 16) == expected


def _next(whole: mmap.mmap, at: int) -> int:
    """Where the next record begins behind this byte; the end of the file if there is none.

    A record's length is less than the file's: its highest bytes are zeros, which are quickly found.
    """
    low = (len(whole).bit_length() + 7) // 8
    zeros = whole.find(bytes(8 - low), at + 1 + low)
    while zeros >= 0:
        if _ends(whole, zeros - low) is not None:
            return zeros - low
        zeros = whole.find(bytes(8 - low), zeros + 1)
    return len(whole)


def _unfinished(whole: Content, at: int) -> bool:
    """Whether the rest of the file is a record that was never finished, as readers see it."""
    head = whole[at : at + _HEAD.size]
    if len(head) < _HEAD.size or not any(head):
        return True
    length, of_length, _ = _HEAD.unpack(head)
    return of_length == _digest(struct.pack("<Q", length), 8)  # type: ignore[no-any-return]


def _free(path: Path) -> Path:
    """A name for what is cut that no file has."""
    numbers = itertools.chain(("",), (f".{number}" for number in itertools.count(2)))
    names = (path.with_name(f"{path.name}{number}{DAMAGED}") for number in numbers)
    return next(name for name in names if not name.exists())


def _record(content: bytes) -> bytes:
    return _HEAD.pack(len(content), _digest(struct.pack("<Q", len(content)), 8), _digest(content, 16)) + content


def _digest(content: bytes, size: int) -> bytes:
    return blake2b(content, digest_size=size).digest()
