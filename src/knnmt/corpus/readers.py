"""Reading a corpus of any format: the suffix chooses the reader, and unreadable files are refused at once."""

import logging
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from pathlib import Path

from knnmt.corpus.catalog import read_catalog
from knnmt.corpus.files import require_readable, require_text
from knnmt.corpus.identify import identified
from knnmt.corpus.line_formats import read_jsonl, read_plain, read_tsv
from knnmt.corpus.naming import Corpus, corpora_of, corpus_of
from knnmt.corpus.segment import Found, Segment
from knnmt.corpus.tmx import read_tmx
from knnmt.errors import DataError
from knnmt.languages import Languages

_log = logging.getLogger(__name__)


def read(
    path: Path | str,
    languages: Languages,
    *,
    msgid_language: str = "en",
    bad: Callable[[DataError], None] | None = None,
) -> Iterator[Segment]:
    """Stream the segments of a TMX, PO, MO, TSV or JSONL file or of a pair of plain files, gzipped or not.

    A plain pair `X.de` and `X.en` is named by either file or by `X`. A missing file, a missing partner, an unknown
    suffix or an encoding other than UTF-8 is refused here, before the first segment; invalid content when it is met.
    With `bad`, invalid segments are passed to it as errors and skipped; an error that concerns the whole file is still
    raised. A catalog is valid or corrupt as a whole.
    """
    return _read(_checked(corpus_of(Path(path), languages)), languages, msgid_language, bad)


def read_all(
    paths: Iterable[Path | str],
    languages: Languages,
    *,
    msgid_language: str = "en",
    bad: Callable[[DataError], None] | None = None,
    identify: bool = True,
) -> Iterator[Segment]:
    """Stream several corpora one after the other; all files are checked before the first is read.

    The two sides of a pair are one corpus, and a corpus named twice is read once: see `naming.py`. With `identify`, a
    corpus with swapped sides is refused, and one in a wrong language causes a warning.
    """
    corpora, notes = corpora_of(map(Path, paths), languages)
    for note in notes:
        _log.warning("%s", note)
    streams = [(corpus, _read(_checked(corpus), languages, msgid_language, bad)) for corpus in corpora]
    return chain.from_iterable(
        identified(stream, str(corpus), languages) if identify else stream for corpus, stream in streams
    )


def files_of(paths: Path | str | Iterable[Path | str], languages: Languages) -> list[Path]:
    """The files that `read`, or `read_all` of several paths, would open, with the same checks."""
    if isinstance(paths, Path | str):
        return list(_checked(corpus_of(Path(paths), languages)).files)
    corpora, _ = corpora_of(map(Path, paths), languages)
    return [file for corpus in corpora for file in _checked(corpus).files]


def _checked(corpus: Corpus) -> Corpus:
    """The corpus, after checking that its files can be opened, and that line formats are UTF-8."""
    for file in corpus.files:
        require_readable(file) if corpus.format in (".tmx", ".po", ".mo") else require_text(file)
    return corpus


def _read(
    corpus: Corpus, languages: Languages, msgid_language: str, bad: Callable[[DataError], None] | None
) -> Iterator[Segment]:
    return _valid(_parsed(corpus, languages, msgid_language), bad)


def _parsed(corpus: Corpus, languages: Languages, msgid_language: str) -> Iterator[Found]:
    path = corpus.files[0]
    match corpus.format:
        case ".tsv":
            return read_tsv(path)
        case ".jsonl":
            return read_jsonl(path, languages)
        case ".tmx":
            return read_tmx(path, languages)
        case ".po" | ".mo":
            return read_catalog(path, languages, msgid_language)
        case _:
            return read_plain(path, corpus.files[1])


def _valid(stream: Iterator[Found], bad: Callable[[DataError], None] | None) -> Iterator[Segment]:
    for found in stream:
        if isinstance(found, Segment):
            yield found
        elif bad is None:
            raise found
        else:
            bad(found)
