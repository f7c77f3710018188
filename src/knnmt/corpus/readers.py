"""One door for all formats: the suffix chooses the reader, and what cannot be opened is refused at once."""

from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from knnmt.corpus.catalog import read_catalog
from knnmt.corpus.files import require_readable, without_gz
from knnmt.corpus.lined import find_pair, read_jsonl, read_plain, read_tsv
from knnmt.corpus.segment import Found, Segment
from knnmt.corpus.tmx import read_tmx
from knnmt.errors import DataError
from knnmt.languages import Languages

_ONE_FILE = (".tsv", ".jsonl", ".tmx", ".po", ".mo")


def read(
    path: Path | str,
    languages: Languages,
    *,
    msgid_language: str = "en",
    bad: Callable[[DataError], None] | None = None,
) -> Iterator[Segment]:
    """Stream the segments of a TMX, PO, MO, TSV or JSONL file or of a pair of plain files, gzipped or not.

    A plain pair `X.de` and `X.en` is named by either file or by `X`. A missing file, a missing partner or
    an unknown suffix is refused here, before the first segment; broken content where it is met. With `bad`,
    a segment that is broken on its own is handed to it as its fault, and the next one is read; what is wrong
    with a whole file is raised all the same. A catalog is sound or broken as a whole.
    """
    return _sound(_found(Path(path), languages, msgid_language), bad)


def read_all(
    paths: Iterable[Path | str],
    languages: Languages,
    *,
    msgid_language: str = "en",
    bad: Callable[[DataError], None] | None = None,
) -> Iterator[Segment]:
    """Stream several corpora one after the other; all of them are looked for before the first is read."""
    streams = [read(path, languages, msgid_language=msgid_language, bad=bad) for path in paths]
    return chain.from_iterable(streams)


def files_of(path: Path | str, languages: Languages) -> list[Path]:
    """Give the files that `read` would open, one or both of a plain pair; what it refuses is refused here too."""
    path = Path(path)
    if _format(path) in _ONE_FILE:
        return [require_readable(path)]
    return list(find_pair(path, languages))


def _format(path: Path) -> str:
    return without_gz(path).suffix.lower()


def _found(path: Path, languages: Languages, msgid_language: str) -> Iterator[Found]:
    files = files_of(path, languages)
    match _format(path):
        case ".tsv":
            return read_tsv(path)
        case ".jsonl":
            return read_jsonl(path, languages)
        case ".tmx":
            return read_tmx(path, languages)
        case ".po" | ".mo":
            return read_catalog(path, languages, msgid_language)
        case _:
            return read_plain(*files)


def _sound(stream: Iterator[Found], bad: Callable[[DataError], None] | None) -> Iterator[Segment]:
    for found in stream:
        if isinstance(found, Segment):
            yield found
        elif bad is None:
            raise found
        else:
            bad(found)
