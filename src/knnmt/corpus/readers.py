"""One door for all formats: the suffix chooses the reader, and what cannot be opened is refused at once."""

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from knnmt.corpus.catalog import read_catalog
from knnmt.corpus.files import require_readable, without_gz
from knnmt.corpus.lined import find_pair, read_jsonl, read_plain, read_tsv
from knnmt.corpus.segment import Segment
from knnmt.corpus.tmx import read_tmx
from knnmt.languages import Languages


def read(path: Path | str, languages: Languages, *, msgid_language: str = "en") -> Iterator[Segment]:
    """Stream the segments of a TMX, PO, MO, TSV or JSONL file or of a pair of plain files, gzipped or not.

    A plain pair `X.de` and `X.en` is named by either file or by `X`. A missing file, a missing partner or
    an unknown suffix is refused here, before the first segment; broken content where it is met.
    """
    path = Path(path)
    match without_gz(path).suffix.lower():
        case ".tsv":
            return read_tsv(require_readable(path))
        case ".jsonl":
            return read_jsonl(require_readable(path), languages)
        case ".tmx":
            return read_tmx(require_readable(path), languages)
        case ".po" | ".mo":
            return read_catalog(require_readable(path), languages, msgid_language)
        case _:
            return read_plain(*find_pair(path, languages))


def read_all(paths: Iterable[Path | str], languages: Languages, *, msgid_language: str = "en") -> Iterator[Segment]:
    """Stream several corpora one after the other; all of them are looked for before the first is read."""
    streams = [read(path, languages, msgid_language=msgid_language) for path in paths]
    return chain.from_iterable(streams)
