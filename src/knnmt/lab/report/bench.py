"""What `knnmt bench --output` wrote, as far as it can be drawn."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from knnmt.errors import DataError, UsageError

SPEED = {"system", "ratio", "seconds", "split", "segments"}  # what a row of times has, beside others
MEMORY = {"system", "memory", "batch_size", "next_peak"}  # one of the largest batches
GROWTH = {"system", "tokens", "batch", "opened"}  # and one of a synthetic store
AXES = {
    "k": "neighbours k", "c": "tokens that a source token sees, c", "length": "source length, tokens",
    "entries": "entries of the store", "batch_size": "texts of a batch", "beam": "beams",
}  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """Rows of times beside base MT, rows of growth, rows of largest batches, and where they were measured."""

    name: str
    speed: list[dict[str, Any]]
    growth: list[dict[str, Any]]
    machine: dict[str, Any]
    batches: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> "Bench":
        """Read a file of rows."""
        try:
            content = json.loads(path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}; `knnmt bench --output` writes it") from None
        except ValueError:
            raise DataError(f"{path} is not JSON: write it with `knnmt bench --output`") from None
        rows = list(_rows(content))
        speed, growth, batches = ([row for row in rows if row.keys() >= kind] for kind in (SPEED, GROWTH, MEMORY))
        if not speed and not growth and not batches:
            raise DataError(f"{path} holds no benchmark figures: write it with `knnmt bench --output`")
        machine = content.get("machine") if isinstance(content, dict) else None
        return cls(path.stem, speed, growth, machine if isinstance(machine, dict) else {}, batches)

    @property
    def device(self) -> str:
        """What it was measured on, in words."""
        return str(self.machine.get("device_name") or self.machine.get("processor") or "an unnamed machine")

    @property
    def axes(self) -> list[str]:
        """What was swept: each thing that a system was timed at several values of."""
        return [axis for axis in AXES if any(len(values) > 1 for values in self._values(axis).values())]

    def _values(self, axis: str) -> dict[str, set[Any]]:
        """By system."""
        found: dict[str, set[Any]] = {}
        for row in self.along(axis):
            if row["ratio"] is not None:
                found.setdefault(row["system"], set()).add(row[axis])
        return found

    def along(self, axis: str) -> list[dict[str, Any]]:
        """The rows along an axis: those that are at their system's usual value of everything else."""
        usual = self._usual_values()
        return [
            row
            for row in self.speed
            if row.get(axis) is not None
            and all(row.get(other) in (None, usual[row["system"], other]) for other in AXES if other != axis)
        ]

    def usual(self) -> list[dict[str, Any]]:
        """The rows at the usual value of everything, one a system."""
        usual = self._usual_values()
        first: dict[str, dict[str, Any]] = {}
        for row in self.speed:
            if all(row.get(axis) in (None, usual[row["system"], axis]) for axis in AXES):
                first.setdefault(row["system"], row)
        return list(first.values())

    def _usual_values(self) -> dict[tuple[str, str], Any]:
        """By system and axis: systems need not have the same."""
        systems = {row["system"] for row in self.speed}
        return {
            (system, axis): _usual(row.get(axis) for row in self.speed if row["system"] == system)
            for system in systems
            for axis in AXES
        }


def _usual(values: Iterable[Any]) -> Any:
    """The most frequent value; the median of those, if several are."""
    counts = Counter(value for value in values if value is not None)
    most = max(counts.values(), default=0)
    often = sorted(value for value, count in counts.items() if count == most)
    return often[len(often) // 2] if often else None


def _rows(content: object) -> Iterator[dict[str, Any]]:
    """All rows, in whatever lists of the file they stand."""
    lists = [content, *(content.values() if isinstance(content, dict) else [])]
    return (row for some in lists if isinstance(some, list) for row in some if isinstance(row, dict))
