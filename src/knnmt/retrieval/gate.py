"""A gate: a small network that predicts λ of each beam from its neighbours and the model's probabilities.

`knnmt tune` trains it (`knnmt.tune.gate`) and stores it beside its settings. Its features need no pass over the
vocabulary. They do not depend on how often a token is among the neighbours, nor on the rest of the batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from knnmt.errors import DataError, UsageError
from knnmt.tensor_files import Kind

if TYPE_CHECKING:
    from knnmt.systems.system import Neighbours

FILE = Kind("knnmt-gate-1", "gate", "`knnmt tune` trains one")
FEATURES = ("distance", "best", "agreed")
HIDDEN = 16
SHAPES: dict[str, tuple[int, ...]] = {
    "mean": (len(FEATURES),), "spread": (len(FEATURES),),
    "inner": (HIDDEN, len(FEATURES)), "inner_bias": (HIDDEN,), "outer": (1, HIDDEN), "outer_bias": (1,),
}  # fmt: skip
LEAST = -12.0  # of a log-probability: what is less likely is all the same


def features(found: "Neighbours", logits: Tensor, normaliser: Tensor, scale: float) -> Tensor:
    """What a gate sees of each beam, (B, K, F) as `FEATURES` names them; finite also where nothing was found.

    √ of the nearest neighbour's distance, in the store's scale; log p_kNN of p_kNN's best token; log p_MT of that.
    """
    best, place = found.log_p.max(dim=-1)
    token = found.tokens.gather(-1, place[..., None])
    agreed = logits.gather(-1, token)[..., 0] - normaliser
    logs = torch.stack((best, agreed), dim=-1).clamp_(LEAST, 0.0)
    distance = torch.where(found.nearest < torch.inf, found.nearest, 0.0).div_(scale).sqrt_()
    return torch.cat((distance[..., None], logs), dim=-1).float()


class Purpose(NamedTuple):
    """What a gate was trained for: distances of other keys mean something else."""

    system: str
    key: str
    metric: str


@dataclass(frozen=True, eq=False)
class Gate:
    """The network, features → tanh → λ, by the names of `SHAPES`, and what it was trained for."""

    purpose: Purpose
    parameters: Mapping[str, Tensor]

    def __call__(self, seen: Tensor) -> Tensor:
        """λ of features (..., F), between 0 and 1. (...)."""
        of = self.parameters
        inner = torch.tanh(
            torch.nn.functional.linear((seen - of["mean"]) / of["spread"], of["inner"], of["inner_bias"])
        )
        return torch.sigmoid(torch.nn.functional.linear(inner, of["outer"], of["outer_bias"]))[..., 0]

    def leaning(self, towards: float) -> "Gate":
        """The same gate with this much added to the log-odds of every λ."""
        return Gate(self.purpose, {**self.parameters, "outer_bias": self.parameters["outer_bias"] + towards})

    def on(self, device: torch.device) -> "Gate":
        """The same gate on a device."""
        return Gate(self.purpose, {name: value.to(device) for name, value in self.parameters.items()})

    # ------------------------------------------------------------------------------------------------- identity

    @property
    def digest(self) -> str:
        """Identifies the purpose and the parameters."""
        running = blake2b("\0".join(self.purpose).encode(), digest_size=16)
        for name in SHAPES:
            running.update(self.parameters[name].cpu().numpy().tobytes())
        return running.hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Gate) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    # ---------------------------------------------------------------------------------------------------- files

    def save(self, path: Path) -> None:
        """Write it to one safetensors file, whole or not at all."""
        arrays = {name: value.cpu().numpy() for name, value in self.parameters.items()}
        FILE.write(path, arrays, {"features": " ".join(FEATURES), **self.purpose._asdict()})

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a gate that `save` wrote."""
        metadata, arrays = FILE.read(path, SHAPES)
        shaped = all(array.shape == SHAPES[name] and array.dtype == np.float32 for name, array in arrays.items())
        finite = all(bool(np.isfinite(array).all()) for array in arrays.values()) and bool((arrays["spread"] > 0).all())
        told = metadata.get("features") == " ".join(FEATURES) and metadata.keys() >= set(Purpose._fields)
        if not (shaped and finite and told):
            raise FILE.corrupt(path, "invalid parameters")
        parameters = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return cls(Purpose(*(metadata[name] for name in Purpose._fields)), parameters)


def require_gate(gate: Gate | None, purpose: Purpose) -> Gate:
    """The gate, if there is one and it was trained for this."""
    if gate is None:
        raise UsageError("λ is learned, but there is no gate: use settings that `knnmt tune` wrote")
    if gate.purpose != purpose:
        made, here = (f"{some.system} ({some.key}, {some.metric})" for some in (gate.purpose, purpose))
        raise DataError(f"the gate was trained for {made}, not for {here}: train one with `knnmt tune`")
    return gate
