"""Documents for the checks: the units of a file with their translations, or those of a file and of its translation."""

from collections.abc import Iterator, Sequence

from knnmt.checks.review import Translated
from knnmt.documents.document import Document
from knnmt.documents.unit import Unit
from knnmt.errors import UsageError
from knnmt.text.inline import Inline

EMPTY = Inline("")


def reviewed(document: Document) -> Iterator[Translated]:
    """The units of a document with their translations; those without one have an empty one."""
    name = document.content.name
    for number, entry in enumerate(document.entries):
        for unit in entry.units:
            yield Translated(name, unit.line, unit.key, unit.source, unit.target or EMPTY, number)


def side_by_side(source: Document, target: Document) -> Iterator[Translated]:
    """The units of a document with those of its translation: by key, in plain text by line, else by order."""
    name, ours, theirs = target.content.name, list(source.units), list(target.units)
    if source.format.name == target.format.name == "text":
        yield from _by_key(name, [(str(unit.line), unit) for unit in ours], {str(unit.line): unit for unit in theirs})
    elif _keyed(ours) and _keyed(theirs):
        yield from _by_key(name, [(unit.key, unit) for unit in ours], {unit.key: unit for unit in theirs})
    elif len(ours) == len(theirs):
        for number, (unit, other) in enumerate(zip(ours, theirs, strict=True)):
            yield Translated(name, other.line, other.key, unit.source, other.source, number)
    else:
        raise UsageError(
            f"{source.content.name} has {len(ours):,} texts and {name} {len(theirs):,}: "
            "a document and its translation have the same"
        )


def _keyed(units: Sequence[Unit]) -> bool:
    keys = {unit.key for unit in units}
    return "" not in keys and len(keys) == len(units)


def _by_key(name: str, ours: Sequence[tuple[str, Unit]], theirs: dict[str, Unit]) -> Iterator[Translated]:
    for number, (key, unit) in enumerate(ours):
        other = theirs.get(key)
        line = other.line if other is not None else unit.line if unit.key == "" else 0
        yield Translated(name, line, unit.key, unit.source, other.source if other is not None else EMPTY, number)
