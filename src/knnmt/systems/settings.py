"""The settings of retrieval, as a command, a settings file or a caller gives them."""

import json
from pathlib import Path
from typing import Any, Literal

from pydantic import AliasChoices, ConfigDict, Field, ValidationError

from knnmt.errors import DataError, UsageError
from knnmt.files import write_whole
from knnmt.retrieval.gate import Gate
from knnmt.settings import Settings, refusal
from knnmt.store.manifest import TUNED

WEIGHT = 0.9  # λ where none is given
# one cluster's entries, in the order of their distance to its centre, deserve less trust than the nearest of all
WEIGHTS = {"faster": 0.5, "faster-exact": 0.7, "similar": 0.8}
# λ where tuning found nothing better than base MT: too small to change a word, and not the 0 by which one asks for
# base MT and which silences what was taught, too
SILENT = 1e-9
TEMPERATURE, REACH = 1 / 40, 1 / 2  # T and τ where none is given, of the median distance between random keys
# a small store has little that is near: what is farther than this made translations worse than base MT's
TEMPERATURES, REACHES = {"similar": 1 / 20}, {"similar": 1 / 4}
SEEN = 64  # c where none is given
SEEN_BY = {"similar": 8}

Adapt = Literal["constant", "distance", "learned"]


def gate_file(path: Path) -> Path:
    """Where the gate of a file of settings lies."""
    return path.with_name(f"{path.stem}.gate.safetensors")


def tuned_settings(store: Path) -> "RetrievalSettings | None":
    """The settings that were found best for the store of a folder, if it was tuned."""
    path = store / TUNED
    return RetrievalSettings.load(path) if path.exists() else None


class RetrievalSettings(Settings):
    """How a store is searched, and how much what is found counts. Distances are in the store's metric."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    system: str = Field(default="auto", description="which of the systems; auto: the best that the store has")
    k: int | None = Field(
        default=16, ge=1, le=4096, description="neighbours; null for a whole cluster (faster only; similar has no k)"
    )
    c: int | None = Field(
        default=None,
        ge=1,
        description="training tokens (similar, fast) or prototypes (proto) that a source token sees; "
        "default: by the system",
    )
    segments: int = Field(default=4, ge=0, description="training segments that a sentence sees whole (similar)")
    temperature: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="T: the softmax is over -distance/T; default: by the store"
    )
    weight: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="λ: the share of p_kNN, or the most of it; default: by the system",
        validation_alias=AliasChoices("lambda", "weight"),  # `lambda` is a word of Python
        serialization_alias="lambda",
    )
    adapt: Adapt = Field(
        default="distance",
        description="λ is constant, falls with the nearest neighbour's distance, or is what a gate has learned",
    )
    reach: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="τ: the distance at which λ is 0; default: by the store"
    )
    probe: int = Field(default=1, ge=1, description="clusters that are ranked together (faster)")
    nprobe: int = Field(default=32, ge=1, description="lists searched where not all are: FAISS index, large types")
    index: bool = Field(default=False, description="search by the store's FAISS index instead of exactly (knn)")

    gate: Gate | None = Field(
        default=None, exclude=True, repr=False, description="gives λ where it is learned; it has a file of its own"
    )

    @classmethod
    def load(cls, path: Path) -> "RetrievalSettings":
        """Read the settings that `save` wrote."""
        try:
            content = json.loads(path.read_bytes())
            found = cls.model_validate(content["retrieval"])
        except FileNotFoundError:
            raise UsageError(f"{path}: no such file of settings; `knnmt tune` writes one") from None
        except ValidationError as error:
            raise DataError(f"{path}: {' '.join(refusal(cls, error))}; write it with `knnmt tune`") from None
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: it is no JSON with settings of retrieval; write it with `knnmt tune`") from None
        if found.adapt != "learned":
            return found
        gate = Gate.load(gate_file(path))
        if content.get("gate", gate.digest) != gate.digest:
            raise DataError(f"{gate_file(path)}: it is not the gate that {path.name} was written with: tune again")
        return found.model_copy(update={"gate": gate})

    def save(self, path: Path, **notes: Any) -> None:
        """Write the settings, and notes on how they were found; where λ is learned, the gate to a file beside them."""
        content = {"retrieval": self.model_dump(mode="json", by_alias=True), **notes}
        gate = self.gate if self.adapt == "learned" else None
        if gate is not None:
            gate.save(gate_file(path))
            content["gate"] = gate.digest  # two files are not replaced at once: what does not fit is refused
        write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
        if gate is None:
            gate_file(path).unlink(missing_ok=True)  # of settings that these replace

    def of(self, system: str) -> "RetrievalSettings":
        """The settings for a system; where they were found for another one, what only that one takes is left out."""
        k = RetrievalSettings().k if self.k is None and system != self.system else self.k
        other = self if system == self.system else self.without_gate()
        return other.model_copy(update={"system": system, "k": k})

    def weighing(self, weight: float) -> "RetrievalSettings":
        """The settings with another λ, or the most of it: who names one does not want what a gate has learned."""
        return self.without_gate().model_copy(update={"weight": weight})

    def without_gate(self) -> "RetrievalSettings":
        """The settings with λ by distance where it was learned."""
        return self if self.adapt != "learned" else self.model_copy(update={"adapt": "distance", "gate": None})

    @property
    def most_weight(self) -> float:
        """λ, or the most of it."""
        return WEIGHTS.get(self.system, WEIGHT) if self.weight is None else self.weight

    @property
    def silent(self) -> bool:
        """Whether nothing of the store's part can be heard: base MT, but for what was taught where λ is not 0."""
        return self.most_weight <= SILENT

    @property
    def seen(self) -> int:
        """c."""
        return SEEN_BY.get(self.system, SEEN) if self.c is None else self.c

    def temperature_of(self, scale: float) -> float:
        """T, given the median distance between random keys."""
        return self.temperature or scale * TEMPERATURES.get(self.system, TEMPERATURE)

    def reach_of(self, scale: float) -> float:
        """τ, given the median distance between random keys."""
        return self.reach or scale * REACHES.get(self.system, REACH)
