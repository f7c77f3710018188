"""An append-only file of records: each is on disk as a whole when `append` returns, or not there at all.

A record is its length, the length's digest, the content's digest, and the content. What a crash leaves at the end of
the file, half a record, was never acknowledged: readers pass over it and the next writer cuts it off. Anything else
that does not fit its digest is damage, and is refused.
"""

import os
import struct
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path

from knnmt.errors import StoreError
from knnmt.host import sync

MAGIC = b"knnmt journal 1\n"
_HEAD = struct.Struct("<Q8s16s")


class Journal:
    """A journal, of which everything up to `end` has been read here."""

    def __init__(self, path: Path) -> None:
        self.path, self.end = path, 0

    def read(self) -> Iterator[bytes]:
        """The records that were written since the last time; none, as long as there is no file."""
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            if not self.end:
                begun = file.read(len(MAGIC))
                if begun != MAGIC:
                    if size > len(MAGIC) or not MAGIC.startswith(begun.rstrip(b"\0")):
                        raise StoreError(f"{self.path} is damaged: it does not begin as a journal does")
                    return
                self.end = len(MAGIC)
            file.seek(self.end)
            while (content := self._record(file.read(_HEAD.size), size)) is not None:
                length, expected = content
                read = file.read(length)
                after = self.end + _HEAD.size + length
                if _digest(read, 16) != expected:
                    if after == size:  # the last one: its pages never reached the disk
                        return
                    raise StoreError(f"{self.path} is damaged: the record at byte {self.end} is not what was written")
                self.end = after
                yield read

    def _record(self, head: bytes, size: int) -> tuple[int, bytes] | None:
        """Length and digest of the record that begins at `end`; None where the file ends, or ends in half a record."""
        if len(head) < _HEAD.size:
            return None
        length, of_length, of_content = _HEAD.unpack(head)
        if _digest(struct.pack("<Q", length), 8) != of_length:
            if not any(head):  # the file was made longer, and then the machine stopped
                return None
            raise StoreError(f"{self.path} is damaged: at byte {self.end} there is no record")
        return (length, of_content) if self.end + _HEAD.size + length <= size else None

    def append(self, content: bytes) -> None:
        """Write a record after all others, which must have been read; the caller is the only writer."""
        new = not self.end
        head = _HEAD.pack(len(content), _digest(struct.pack("<Q", len(content)), 8), _digest(content, 16))
        with self.path.open("ab") as file:
            try:
                file.truncate(self.end)
                file.write((MAGIC if new else b"") + head + content)
                file.flush()
                os.fsync(file.fileno())
            except OSError:
                os.truncate(self.path, self.end)
                raise
        if new:
            sync(self.path.parent)
        self.end += (len(MAGIC) if new else 0) + len(head) + len(content)


def _digest(content: bytes, size: int) -> bytes:
    return blake2b(content, digest_size=size).digest()
