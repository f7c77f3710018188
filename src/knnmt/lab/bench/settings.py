"""The settings of a benchmark, and the sweeps over them."""

from typing import Any

from pydantic import Field

from knnmt.errors import UsageError
from knnmt.settings import Settings

SWEPT = ("k", "c", "nprobe", "batch_size", "beam", "length", "store")
OF_RETRIEVAL = ("k", "c", "nprobe", "store")  # base MT is the same at every value


class BenchSettings(Settings):
    """What is timed. With so small a λ every system gives base MT's output, in as many decoding steps, and does all its
    work; with λ = 0 mixing would be skipped."""

    systems: tuple[str, ...] = Field(default=(), description="systems beside base MT; default: all of the store")
    pairs: int = Field(default=10, ge=2, description="interleaved rounds of base MT and each system")
    segments: int = Field(default=500, ge=1, description="use the first N segments only")
    beam: int = Field(default=5, ge=1, le=64, description="beam size; 1 is greedy search")
    batch_size: int = Field(default=32, ge=1, description="segments per batch")
    k: int = Field(default=16, ge=1, le=4096, description="neighbours per step")
    c: int | None = Field(
        default=None, ge=1, description="training tokens (or prototypes) per source token; default: by the system"
    )
    index: bool = Field(default=False, description="search the store's FAISS index")
    nprobe: int = Field(default=32, ge=1, description="lists to search, in a FAISS index or type of many clusters")
    weight: float = Field(
        default=1e-30, ge=0, le=1, alias="lambda", description="weight of p_kNN; the default changes no translation"
    )
    length: int | None = Field(default=None, ge=2, description="source tokens of each text; default: the input's own")
    engines: bool = Field(default=False, description="also time generate() and, if installed, CTranslate2")
    first_pass: bool = Field(default=True, description="also time a first pass without warm-up, in a new process")

    def changed(self, name: str, value: object) -> "BenchSettings":
        """The settings with another value of one, checked."""
        return BenchSettings.model_validate(self.model_dump(by_alias=True) | {name: value})


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
