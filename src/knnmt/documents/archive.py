"""Office documents are ZIP archives of XML: members are read with limits, and written back in place.

A member that has no translation is copied as it is; order, compression, times and attributes of all of them stay.
"""

import io
import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field, replace

from knnmt.documents.content import Content, decoded
from knnmt.documents.unit import Entry
from knnmt.errors import DataError

MOST_BYTES = 1 << 30  # that an archive may unpack to
MOST_RATIO = 100  # of unpacked to packed bytes, in archives that unpack to more than `SMALL`
SMALL = 1 << 26
_COMPOUND = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"  # Microsoft's container of encrypted and of old documents
_ENCRYPTED = 1  # the bit of a member's flags
_BLOCK = 1 << 20
_ENTITIES = re.compile(r"<!DOCTYPE[^>]*\[")


def _empty() -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(), "w")


@dataclass(frozen=True)
class Archive(Content):
    """An archive as a file: its own `text` is empty, its members are contents of their own."""

    data: bytes = b""
    file: zipfile.ZipFile = field(default_factory=_empty)

    @property
    def members(self) -> list[str]:
        """The names of the members, in the order of the archive."""
        return self.file.namelist()

    def member(self, name: str) -> Content:
        """A member as text, which errors call `FILE:MEMBER`."""
        if name not in self.file.NameToInfo:
            raise DataError(f"{self.name}: the archive has no {name}; save the document again with its own program")
        found = decoded(self.file.read(name), f"{self.name}:{name}", "xml")
        if _ENTITIES.search(found.text[:4096]):
            raise found.error(0, "the DOCTYPE declares entities, which no office document does: it may be an attack")
        return replace(found, languages=self.languages)

    def edited(self, entries: Iterable[Entry], spell: Callable[[str], str] | None) -> bytes:
        """The archive, in which the members that have translations are written again."""
        changed: defaultdict[str, list[Entry]] = defaultdict(list)
        for entry in entries:
            changed[entry.member].append(entry)
        if not changed:
            return self.data
        new = io.BytesIO()
        with zipfile.ZipFile(new, "w") as archive:
            archive.comment = self.file.comment
            for info in self.file.infolist():
                name = info.filename
                content = self.member(name).edited(changed[name], spell) if name in changed else self.file.read(info)
                archive.writestr(copy(info), content)  # which sets what it finds, the place too
        return new.getvalue()


def opened(data: bytes, name: str) -> Archive:
    """Open an archive; one that is encrypted, corrupt or unpacks to too much is refused before any work."""
    if data.startswith(_COMPOUND):
        raise DataError(
            f"{name}: the document is encrypted, or in the format of Office 97; save it without a password, as DOCX, "
            "XLSX or PPTX"
        )
    try:
        file = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OverflowError, NotImplementedError) as error:
        raise _corrupt(name, error) from None
    infos = file.infolist()
    if len({info.filename for info in infos}) != len(infos):
        raise _corrupt(name, "a member is there twice")
    if any(info.flag_bits & _ENCRYPTED for info in infos):
        raise DataError(f"{name}: the document is encrypted; save it without a password")
    size = sum(info.file_size for info in infos)
    if size > MOST_BYTES or size > max(SMALL, MOST_RATIO * len(data)):
        raise DataError(
            f"{name}: the archive unpacks from {len(data) / 2**20:,.1f} to {size / 2**20:,.0f} MiB, which no document "
            "does: it may be an attack"
        )
    for info in infos:
        try:
            with file.open(info) as member:  # reads no more than it declares, and compares the checksum
                while member.read(_BLOCK):
                    pass
        except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, OSError, RuntimeError) as error:
            raise _corrupt(name, f"{info.filename}: {error}") from None
    return Archive("", name, data=data, file=file)


def _corrupt(name: str, reason: object) -> DataError:
    return DataError(f"{name}: the archive is corrupt ({reason}); save the document again with its own program")
