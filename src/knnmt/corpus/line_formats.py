"""Formats with one segment per line: pairs of plain files, TSV, JSONL."""

import json
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path

from knnmt.corpus.files import lines
from knnmt.corpus.segment import Found, Segment
from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages, closeness


def read_plain(source: Path, target: Path) -> Iterator[Found]:
    """Stream the lines of two parallel files; different lengths are an error."""
    for number, (left, right) in enumerate(zip_longest(lines(source), lines(target)), start=1):
        if left is None or right is None:
            short, long = (source, target) if left is None else (target, source)
            raise DataError(
                f"{long}:{number}: {short} has only {number - 1} lines, so they are not parallel; "
                f"line i of one must translate line i of the other"
            )
        if isinstance(left, DataError):
            yield left
        elif isinstance(right, DataError):
            yield right
        else:
            yield Segment(left, right, f"{source}:{number}")


def read_tsv(path: Path) -> Iterator[Found]:
    """Stream lines of source, target and optionally an id, separated by tabs; no quoting, empty lines are skipped."""
    return _each_line(path, _parse_tsv)


def read_jsonl(path: Path, languages: Languages) -> Iterator[Found]:
    """Stream objects with the keys `source` and `target`, or with the language codes as keys.

    They may also be nested under `translation`, as in Hugging Face data sets.
    """
    keys: tuple[str, str] | None = None

    def parse(line: str, place: str) -> Segment | None:
        nonlocal keys
        if not line.strip():
            return None
        texts, name = _parse_json(line, place)
        if keys is None or keys[0] not in texts or keys[1] not in texts:
            keys = _choose_keys(texts, languages, place, first=keys is None)
        source, target = texts[keys[0]], texts[keys[1]]
        if not isinstance(source, str) or not isinstance(target, str):
            raise DataError(f"{place}: {keys[0]!r} and {keys[1]!r} must be strings; correct or remove the line")
        return Segment(source, target, place, name)

    return _each_line(path, parse)


def _each_line(path: Path, parse: Callable[[str, str], Segment | None]) -> Iterator[Found]:
    """Parse each line, given with its place: `parse` returns a segment or None, or raises what is wrong."""
    for number, line in enumerate(lines(path), start=1):
        if isinstance(line, DataError):
            yield line
            continue
        try:
            found: Found | None = parse(line, f"{path}:{number}")
        except DataError as fault:
            found = fault
        if found is not None:
            yield found


def _parse_tsv(line: str, place: str) -> Segment | None:
    if not line:
        return None
    cells = line.split("\t")
    if len(cells) not in (2, 3):
        found = "no tab" if len(cells) == 1 else f"{len(cells)} columns"
        raise DataError(f"{place}: {found}; expected source<TAB>target or source<TAB>target<TAB>id")
    return Segment(cells[0], cells[1], place, (cells[2] or None) if len(cells) == 3 else None)


def _parse_json(line: str, place: str) -> tuple[dict[str, object], str | None]:
    """The object with the texts (the line's own, or a nested one), and the id."""
    try:
        record = json.loads(line)
        whole = "\\u" not in line or _encodable(record)
        name = str(record["id"]) if isinstance(record, dict) and record.get("id") is not None else None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{place}: invalid JSON ({error}); expected one JSON object per line") from None
    if not isinstance(record, dict):
        raise DataError(f'{place}: not a JSON object; expected {{"source": …, "target": …}}')
    if not whole:
        raise DataError(f"{place}: lone surrogate in an escape sequence; correct the line")
    inner = record.get("translation")
    return inner if isinstance(inner, dict) else record, name


def _encodable(record: object) -> bool:
    try:
        json.dumps(record, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _choose_keys(texts: dict[str, object], languages: Languages, place: str, *, first: bool) -> tuple[str, str]:
    """Find the keys of both sides; if the first object lacks them, the language pair is wrong."""
    if "source" in texts and "target" in texts:
        return "source", "target"
    best = []
    for asked in (languages.source, languages.target):
        ranked = [(closeness(asked, key), key) for key in texts]
        rank, key = max(ranked, key=lambda pair: pair[0], default=(0, ""))
        if rank == 0:
            kind = UsageError if first else DataError
            raise kind(
                f"{place}: no text for {asked!r}; keys here: {', '.join(map(repr, texts)) or 'none'}. "
                f'Name the keys "source" and "target", or choose languages that are there'
            )
        best.append(key)
    return best[0], best[1]
