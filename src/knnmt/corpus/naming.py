"""Corpora as named on a command line: files of one format each, or the two files of a plain pair.

A plain pair `X.de` and `X.en` is named by either file, by `X`, or by both files in either order, as in Moses, fairseq
and Marian. Two files with other names, such as `src.txt tgt.txt`, also make a pair if nothing else is ambiguous: their
names say which is which (`src.de.txt`), or else their order does.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from knnmt.corpus.files import without_gz
from knnmt.errors import UsageError
from knnmt.languages import Languages, closeness

ONE_FILE = (".tsv", ".jsonl", ".tmx", ".po", ".mo")
_OTHER_LANGUAGE = re.compile(r"\.[A-Za-z]{2}")  # `.fr` is French where de-en is asked for, `.txt` is any language


@dataclass(frozen=True)
class Corpus:
    """A corpus: one file, or a source and a target file; the format of such a pair is ""."""

    files: tuple[Path, ...]
    format: str = ""

    def __str__(self) -> str:
        return " and ".join(map(str, self.files))

    @property
    def content(self) -> tuple[Path, ...]:
        """The resolved paths, equal for two names of the same files."""
        return tuple(file.resolve() for file in self.files)


def format_of(path: Path) -> str:
    """The suffix of a file, without `.gz`."""
    return without_gz(path).suffix.lower()


def corpus_of(path: Path, languages: Languages) -> Corpus:
    """The corpus that one name stands for."""
    if format_of(path) in ONE_FILE:
        return Corpus((path,), format_of(path))
    return Corpus(find_pair(path, languages))


def corpora_of(paths: Iterable[Path], languages: Languages) -> tuple[list[Corpus], list[str]]:
    """The corpora that several names stand for, without duplicates, and notes on how names were understood."""
    named, notes = list(paths), list[str]()
    found: dict[Path, Corpus] = {}
    for one, other in _both_sides(named, languages):
        found[one] = found[other] = _pair(one, other, languages)
        notes.append(f"{one} and {other}: read as one parallel corpus")
    loose: dict[Path, UsageError] = {}
    for path in named:
        if path not in found:
            try:
                found[path] = corpus_of(path, languages)
            except UsageError as error:
                if not path.is_file():
                    raise
                loose[path] = error
    if loose:
        pair = _loose_pair(loose, languages)
        found |= dict.fromkeys(loose, pair)
        sides = f"{pair.files[0]} as {languages.source} and {pair.files[1]} as {languages.target}"
        notes.append(f"{sides}: read as one parallel corpus")
    once: dict[tuple[Path, ...], tuple[Path, Corpus]] = {}
    for number, path in enumerate(named):
        corpus = found[path]
        first, _ = once.setdefault(corpus.content, (path, corpus))
        if path in named[:number] or found[first] is not corpus:
            notes.append(f"{path}: same files as {first}, skipped")
    return [corpus for _, corpus in once.values()], notes


def _both_sides(paths: list[Path], languages: Languages) -> list[tuple[Path, Path]]:
    """The pairs with both files named, in the order they are named in."""
    sides: dict[tuple[Path, str], Path] = {}
    pairs = []
    for path in dict.fromkeys(paths):
        suffix, prefix = without_gz(path).suffix[1:], without_gz(path).with_suffix("")
        if format_of(path) in ONE_FILE or not path.is_file():
            continue
        for side, other in ((languages.source, languages.target), (languages.target, languages.source)):
            if closeness(side, suffix):
                if (partner := sides.pop((prefix, other), None)) is not None:
                    pairs.append((partner, path))
                else:
                    sides[prefix, side] = path
                break
    return pairs


def _pair(one: Path, other: Path, languages: Languages) -> Corpus:
    """A pair of files, the source first if the names tell which that is."""
    sides = _side(one, languages), _side(other, languages)
    return Corpus((other, one) if languages.target == sides[0] or languages.source == sides[1] else (one, other))


def _side(path: Path, languages: Languages) -> str | None:
    """The language in a file's name: its suffix, or else any part of it."""
    name = without_gz(path)
    for parts in ([name.suffix[1:]], re.split("[._-]", name.name)):
        told = {side for side in (languages.source, languages.target) if any(closeness(side, part) for part in parts)}
        if len(told) == 1:
            return told.pop()
    return None


def _loose_pair(loose: dict[Path, UsageError], languages: Languages) -> Corpus:
    """Pair up the files without a partner, if there are exactly two that fit."""
    sides = [_side(path, languages) for path in loose]
    strange = [
        error
        for (path, error), side in zip(loose.items(), sides, strict=True)
        if side is None and _OTHER_LANGUAGE.fullmatch(without_gz(path).suffix)
    ]
    if len(loose) == 1 or strange or (len(loose) == 2 and sides[0] == sides[1] is not None):
        raise next(iter(strange or loose.values()))
    if len(loose) > 2:
        raise UsageError(
            f"{', '.join(map(str, loose))}: ambiguous pairs; name the two sides of a corpus "
            f"PREFIX.{languages.source} and PREFIX.{languages.target}"
        )
    one, other = loose
    return _pair(one, other, languages)


def find_pair(path: Path, languages: Languages) -> tuple[Path, Path]:
    """Find both files of a plain pair, given either of them or their common prefix."""
    source: Path | None
    target: Path | None
    named = without_gz(path)
    if path.is_file() and closeness(languages.source, named.suffix[1:]):
        source, target = path, _beside(named.with_suffix(""), languages.target)
    elif path.is_file() and closeness(languages.target, named.suffix[1:]):
        source, target = _beside(named.with_suffix(""), languages.source), path
    else:
        source, target = _beside(path, languages.source), _beside(path, languages.target)
    if source is not None and target is not None:
        return source, target
    raise UsageError(_why_no_pair(path, languages, source or target))


def _beside(prefix: Path, asked: str) -> Path | None:
    """Find `prefix.<asked>`, or a variant such as `prefix.de-DE.gz`; several equally good ones are refused."""
    try:
        neighbours = sorted(prefix.parent.iterdir())
    except OSError:
        return None
    ranked: dict[int, list[Path]] = {}
    for path in neighbours:
        name = without_gz(path).name
        if name.startswith(prefix.name + "."):
            ranked.setdefault(closeness(asked, name[len(prefix.name) + 1 :]), []).append(path)
    best = ranked.get(2) or ranked.get(1) or []
    if len({without_gz(path) for path in best}) > 1:
        raise UsageError(
            f"{', '.join(map(str, best))}: all match {asked!r}; "
            f"choose a region, such as {without_gz(best[0]).suffix[1:]}"
        )
    return best[0] if best else None


def _why_no_pair(path: Path, languages: Languages, partner: Path | None) -> str:
    prefix = f"PREFIX.{languages.source} and PREFIX.{languages.target}"
    if partner is not None:
        missing = languages.source if closeness(languages.target, without_gz(partner).suffix[1:]) else languages.target
        stem = without_gz(partner).with_suffix("")
        return f"{partner}: no partner {stem}.{missing}; name the two sides {prefix}"
    if path.is_file():
        return (
            f"{path}: the suffix {without_gz(path).suffix!r} is neither a known format "
            f"(.tmx, .po, .mo, .tsv, .jsonl, each also with .gz) nor a language of {languages}"
        )
    if path.is_dir():
        return f"{path} is a folder; name a file in it, or the common prefix of {prefix}"
    return f"{path}: no such file, nor {path}.{languages.source} and {path}.{languages.target}; check the path"
