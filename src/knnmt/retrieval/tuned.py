"""Retrieval settings with their gate: what `knnmt tune` writes, and what a store was tuned to."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from knnmt.errors import DataError, UsageError
from knnmt.files import write_whole
from knnmt.retrieval.gate import Gate
from knnmt.settings import refusal
from knnmt.store.manifest import TUNED
from knnmt.store.memories import AnyStore
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import serves


@dataclass(frozen=True)
class Tuned:
    """Settings, with the gate that predicts λ if it is learned."""

    settings: RetrievalSettings
    gate: Gate | None = None

    @classmethod
    def load(cls, path: Path) -> "Tuned":
        """Read what `save` wrote."""
        try:
            content = json.loads(path.read_bytes())
            settings = RetrievalSettings.model_validate(content["retrieval"])
        except FileNotFoundError:
            raise UsageError(f"{path}: no such settings file; `knnmt tune` writes one") from None
        except ValidationError as error:
            reason = " ".join(refusal(RetrievalSettings, error))
            raise DataError(f"{path}: {reason}; write it with `knnmt tune`") from None
        except (ValueError, KeyError, TypeError):
            raise DataError(f"{path}: not a JSON file of retrieval settings; write it with `knnmt tune`") from None
        if settings.adapt != "learned":
            return cls(settings)
        gate = Gate.load(gate_file(path))
        if content.get("gate", gate.digest) != gate.digest:
            raise DataError(f"{gate_file(path)}: not the gate that {path.name} was written with: tune again")
        return cls(settings, gate)

    def save(self, path: Path, **notes: Any) -> None:
        """Write the settings and notes on how they were found; the gate goes to a file beside them."""
        content = {"retrieval": self.settings.model_dump(mode="json", by_alias=True), **notes}
        gate = self.gate if self.settings.adapt == "learned" else None
        if gate is not None:
            gate.save(gate_file(path))
            content["gate"] = gate.digest  # two files are not replaced at once: a mismatch is refused
        write_whole(path, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
        if gate is None:
            gate_file(path).unlink(missing_ok=True)  # of settings that these replace

    def of(self, system: str) -> "Tuned":
        """The same for a system; a gate is for the system it was trained for only."""
        return Tuned(self.settings.of(system), self.gate)


def gate_file(path: Path) -> Path:
    """The path of a settings file's gate."""
    return path.with_name(f"{path.stem}.gate.safetensors")


def tuned_for(store: AnyStore) -> Tuned | None:
    """What a store was tuned to, if it was."""
    path = store.path / TUNED
    return Tuned.load(path) if path.exists() else None


def chosen_for(store: AnyStore, system: str | None, given: RetrievalSettings | Tuned | None) -> Tuned:
    """What a store is searched with: what is given, else what the store was tuned to, else the defaults.

    A store is tuned for one system; that is not used where another one is named. `auto` is the one it was tuned for.
    Of several stores the last one's tuning counts, if all of them were built for that system.
    """
    if given is not None:
        chosen = given if isinstance(given, Tuned) else Tuned(given)
        return chosen if system is None else chosen.of(system)
    tuned = tuned_for(store)
    if tuned is not None and system in (None, "auto", tuned.settings.system) and serves(store, tuned.settings.system):
        return tuned
    return Tuned(RetrievalSettings().of(system or "auto"))
