"""What `knnmt bench --output` wrote, as far as it can be drawn."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from knnmt.errors import DataError, UsageError

SPEED = {"system", "ratio", "seconds", "split", "segments"}  # what a row of times has, beside others
GROWTH = {"system", "tokens", "batch", "opened"}  # and one of a synthetic store
AXES = {
    "k": "neighbours k", "c": "tokens that a source token sees, c", "length": "source length, tokens",
    "entries": "entries of the store", "batch_size": "texts of a batch", "beam": "beams",
}  # fmt: skip


@dataclass(frozen=True)
class Bench:
    """Rows of times beside base MT, rows of growth, and where they were measured."""

    name: str
    speed: list[dict[str, Any]]
    growth: list[dict[str, Any]]
    machine: dict[str, Any]

    @classmethod
    def load(cls, path: Path) -> "Bench":
        """Read a file of rows."""
        try:
            content = json.loads(path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}; `knnmt bench --output` writes it") from None
        except ValueError:
            raise DataError(f"{path} is no JSON: write it with `knnmt bench --output`") from None
        rows = list(_rows(content))
        speed, growth = ([row for row in rows if row.keys() >= kind] for kind in (SPEED, GROWTH))
        if not speed and not growth:
            raise DataError(f"{path} has no figures of a benchmark: write it with `knnmt bench --output`")
        machine = content.get("machine") if isinstance(content, dict) else None
        return cls(path.stem, speed, growth, machine if isinstance(machine, dict) else {})

    @property
    def axis(self) -> str | None:
        """What was swept: the one thing that a system was timed at several values of."""
        several = {axis: _most_values(self.speed, axis) for axis in AXES}
        axis = max(several, key=lambda name: several[name], default=None)
        return axis if axis is not None and several[axis] > 1 else None


def _rows(content: object) -> Iterator[dict[str, Any]]:
    """All rows, in whatever lists of the file they stand."""
    lists = [content, *(content.values() if isinstance(content, dict) else [])]
    return (row for some in lists if isinstance(some, list) for row in some if isinstance(row, dict))


def _most_values(rows: list[dict[str, Any]], axis: str) -> int:
    systems = {row["system"] for row in rows if row["ratio"] is not None}
    return max((len({row.get(axis) for row in rows if row["system"] == system}) for system in systems), default=0)
