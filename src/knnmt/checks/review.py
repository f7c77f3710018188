"""The review of whole files: all findings with their places, and texts that are translated in several ways."""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from knnmt.checks.table import INCONSISTENT, check
from knnmt.languages import Languages
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Inline

SHOWN = 60  # characters of a text in a message


class Translated(NamedTuple):
    """A unit of a file with its translation; units of one `entry`, as plural forms, may translate a text in several
    ways. `line` is 0 where the format has no lines."""

    file: str
    line: int
    key: str
    source: Inline
    target: Inline
    entry: int = 0


class Located(NamedTuple):
    """A finding with its place and texts."""

    file: str
    line: int
    key: str
    kind: str
    message: str
    source: str
    target: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line or self.key}: {self.kind}: {self.message}"


def review(
    units: Iterable[Translated],
    languages: Languages | None = None,
    glossary: Glossary | None = None,
    *,
    ignore: Collection[str] = (),
) -> list[Located]:
    """What a reviewer should look at, in the order of the units."""
    units = list(units)
    other = {} if INCONSISTENT in ignore else _inconsistent(units)
    found = []
    for number, unit in enumerate(units):
        said = [*check(unit.source, unit.target, languages, glossary, ignore=ignore)]
        found += [_located(unit, kind, message) for kind, message in said]
        if number in other:
            found.append(_located(unit, INCONSISTENT, other[number]))
    return found


def _located(unit: Translated, kind: str, message: str) -> Located:
    return Located(unit.file, unit.line, unit.key, kind, message, unit.source.written(), unit.target.written())


def _inconsistent(units: list[Translated]) -> dict[int, str]:
    """The units whose text is translated otherwise more often, or first; with what that is."""
    by_source: defaultdict[Inline, list[int]] = defaultdict(list)
    for number in _firsts(units):
        by_source[_bare(units[number].source)].append(number)
    found = {}
    for numbers in by_source.values():
        written = [_bare(units[number].target).written() for number in numbers]
        ((usual, _),) = Counter(written).most_common(1)  # of several the first
        place = units[numbers[written.index(usual)]]
        for number, text in zip(numbers, written, strict=True):
            if text != usual:
                at = f"{place.file}:{place.line or place.key}"
                found[number] = f"elsewhere translated as «{_short(usual)}» ({at})"
    return found


def _firsts(units: list[Translated]) -> Iterator[int]:
    """The translated units, of an entry only the first with a source."""
    seen = set()
    for number, unit in enumerate(units):
        this = unit.file, unit.entry, unit.source
        if unit.target.text.strip() and this not in seen:
            seen.add(this)
            yield number


def _bare(inline: Inline) -> Inline:
    """The text without the white space around it; codes that differ in their ids only are the same."""
    return Inline(inline.text.strip(), tuple(code._replace(raw="", pair=None) for code in inline.codes))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else line[: SHOWN - 1] + "…"
