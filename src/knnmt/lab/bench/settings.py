"""The settings of a benchmark, and the sweeps over them."""

from typing import Any

from pydantic import Field

from knnmt.errors import UsageError
from knnmt.settings import Settings

SWEPT = ("k", "c", "nprobe", "batch_size", "beam", "length", "store")
OF_RETRIEVAL = ("k", "c", "nprobe", "store")  # base MT is the same at every value


class BenchSettings(Settings):
    """What is timed. λ = 0 gives every system base MT's output, and so as many decoding steps; the work is all done."""

    systems: tuple[str, ...] = Field(default=(), description="beside base MT; none named: all that the store serves")
    pairs: int = Field(default=10, ge=2, description="rounds in which base MT and each system are timed in turn")
    segments: int = Field(default=500, ge=1, description="texts of the input, the first")
    beam: int = Field(default=5, ge=1, le=64)
    batch_size: int = Field(default=32, ge=1)
    k: int = Field(default=16, ge=1, le=4096)
    c: int | None = Field(default=None, ge=1)
    index: bool = Field(default=False, description="knn searches by the store's FAISS index")
    nprobe: int = Field(default=32, ge=1, description="lists searched where not all are")
    weight: float = Field(default=0.0, ge=0, le=1, alias="lambda")
    length: int | None = Field(default=None, ge=2, description="source tokens of each text; default: the input's own")
    engines: bool = Field(default=False, description="also time generate() and CTranslate2")


class Sweep(Settings):
    """One setting at several values, the others as they are."""

    name: str
    values: tuple[Any, ...]

    @classmethod
    def parse(cls, text: str) -> "Sweep":
        """Read `k=8,16,64`."""
        name, _, listed = text.partition("=")
        name = name.strip().replace("-", "_")
        values = tuple(dict.fromkeys(value.strip() for value in listed.split(",") if value.strip()))
        if name not in SWEPT or not values:
            raise UsageError(f"cannot sweep {text!r}: write NAME=VALUE,VALUE,… with {', '.join(SWEPT)}")
        if name == "store":
            return cls(name=name, values=values)
        try:
            numbers = tuple(int(value) for value in values)
        except ValueError:
            raise UsageError(f"cannot sweep {text!r}: the values of {name} are whole numbers") from None
        if min(numbers) < 1:
            raise UsageError(f"cannot sweep {text!r}: the values of {name} are at least 1")
        return cls(name=name, values=numbers)
