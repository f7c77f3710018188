"""gettext catalogs, PO and MO: messages of a program (usually in English) and their translations."""

import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from knnmt.corpus.files import opened, without_gz
from knnmt.corpus.segment import Segment
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages, closeness, normal_tag

_TAG = re.compile(r"[A-Za-z]{2,3}(?:[-_@][A-Za-z0-9]+)*")
_STEM = re.compile(r"[a-z]{2}(?:[-_][A-Z]{2})?")  # de.po is German, app.po is a program
_NPLURALS = re.compile(r"nplurals\s*=\s*(\d+)")
_SYNTAX = re.compile(r"\(line (\d+)\)(?:: (.+))?$")


def read_catalog(path: Path, languages: Languages, msgid_language: str = "en") -> Iterator[Segment]:
    """Stream the translated messages of a catalog, without fuzzy and obsolete ones.

    polib needs the whole catalog in memory; catalogs are small. Contexts (msgctxt) are ignored.
    """
    compiled = without_gz(path).suffix.lower() == ".mo"
    catalog = _parse(path, compiled)
    if not catalog:
        return
    msgid_is_source = _msgid_is_source(catalog.metadata, path, languages, msgid_language)
    for number, entry in enumerate(catalog, start=1):
        if not compiled and not entry.translated():
            continue
        origin = f"{path}#{number}" if compiled else f"{path}:{entry.linenum}"
        for message, translation in _pairs(entry, catalog.metadata):
            if not message or not translation:
                continue
            if msgid_is_source:
                yield Segment(message, translation, origin)
            else:
                yield Segment(translation, message, origin)


def _pairs(entry: Any, metadata: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Pair singular and plural if the language has just these two; otherwise only one of them is certain."""
    if not entry.msgid_plural:
        yield entry.msgid, entry.msgstr
        return
    forms: dict[int, str] = entry.msgstr_plural
    declared = _NPLURALS.search(metadata.get("Plural-Forms", ""))
    nplurals = int(declared[1]) if declared else len(forms)
    if nplurals == 1:  # as in Japanese, where the one form goes with any number
        yield entry.msgid_plural, forms.get(0, "")
        return
    yield entry.msgid, forms.get(0, "")
    if nplurals == 2:
        yield entry.msgid_plural, forms.get(1, "")


def _msgid_is_source(metadata: dict[str, str], path: Path, languages: Languages, msgid_language: str) -> bool:
    """Whether messages are the source side; a catalog of another language pair is refused."""
    if closeness(msgid_language, languages.source):
        translated, msgid_is_source = languages.target, True
    elif closeness(msgid_language, languages.target):
        translated, msgid_is_source = languages.source, False
    else:
        raise UsageError(
            f"{path}: msgids are assumed to be {msgid_language!r}, which is not in {languages}; "
            f"set msgid_language if they are in another language"
        )
    found = _language(metadata, path)
    if found is not None and not closeness(translated, found):
        raise UsageError(
            f"{path}: the catalog is {found!r}, but {languages} needs {translated!r}; "
            f"leave it out, or correct its Language header"
        )
    return msgid_is_source


def _language(metadata: dict[str, str], path: Path) -> str | None:
    """A catalog's language by its header, its folder (`de/LC_MESSAGES/x.po`) or its name (`de.po`)."""
    header = metadata.get("Language", "").strip().partition(".")[0]
    if _TAG.fullmatch(header):
        return normal_tag(header)
    place = path.absolute()
    folder = place.parent.parent.name
    if place.parent.name == "LC_MESSAGES" and _TAG.fullmatch(folder):
        return normal_tag(folder)
    stem = without_gz(path).stem
    return normal_tag(stem) if _STEM.fullmatch(stem) else None


def _parse(path: Path, compiled: bool) -> Any:
    import polib

    try:
        with _unpacked(path) as file:
            if not file.stat().st_size:
                return []
            return polib.mofile(str(file)) if compiled else polib.pofile(str(file))
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: byte {error.start + 1} is not valid {error.encoding}; correct the charset in the "
            f"Content-Type header, or convert the file"
        ) from None
    except (OSError, ValueError, LookupError, struct.error) as error:
        syntax = _SYNTAX.search(str(error))
        place = f"{path}:{syntax[1]}" if syntax else str(path)
        reason = (syntax[2] or "invalid PO syntax") if syntax else str(error)
        raise DataError(f"{place}: corrupt catalog ({reason}); check it with msgfmt --check") from None


@contextmanager
def _unpacked(path: Path) -> Iterator[Path]:
    """Unpack a gzipped catalog to a file: from a string, polib would split lines at U+2028 too."""
    if without_gz(path) == path:
        yield path
        return
    with tempfile.TemporaryDirectory() as folder:
        plain = Path(folder) / "catalog"
        with opened(path) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file)
        yield plain
