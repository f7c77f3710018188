"""A store's arrays as tensors on the device that translates: each moved there once, when a system first needs it."""

from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.datastore import quantize
from knnmt.datastore.format import INDEX, Metric
from knnmt.datastore.store import Datastore
from knnmt.errors import StoreError

BLOCK = 1 << 16  # keys that are read at a time


class Keys:
    """States of a store, by row, as float32, whether they are kept as they are or product-quantized."""

    def __init__(self, rows: Tensor, codebooks: Tensor | None = None) -> None:
        self.rows, self.codebooks = rows, codebooks

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The states of these rows. (...) int64 to (..., d) float32."""
        found = self.rows[rows]
        return found.float() if self.codebooks is None else quantize.decode(found, self.codebooks)


class Tensors:
    """The arrays of a store on a device: `tensors["link_offsets"]`; `removed` are entries that nothing may find."""

    def __init__(self, store: Datastore, device: torch.device, removed: NDArray[np.bool_] | None = None) -> None:
        self.store, self.device = store, device
        self.metric: Metric = store.manifest.metric
        self.removed = None if removed is None else torch.from_numpy(removed).to(device)
        self._moved: dict[str, Tensor] = {}
        self._index: Any = None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._moved:
            self._moved[name] = torch.from_numpy(self.store.part[name]).to(self.device)
        return self._moved[name]

    def keys(self, side: str) -> Keys:
        """The states of the `source` or the `target` side."""
        part = self.store.part
        if f"{side}_keys" in part:
            return Keys(self[f"{side}_keys"])
        if f"{side}_codes" in part:
            return Keys(self[f"{side}_codes"], self[f"{side}_codebooks"])
        raise StoreError(f"{self.store.path} was built without {side} keys, which this system needs: build it for that")

    @cached_property
    def target_norms(self) -> Tensor:
        """The squared lengths of all target keys; infinite for those that were removed. (E,)."""
        keys = self.keys("target")
        norms = torch.cat([keys[slice(at, at + BLOCK)].square().sum(-1) for at in range(0, len(keys), BLOCK)])
        return norms if self.removed is None else norms.masked_fill_(self.removed, torch.inf)

    def index(self, nprobe: int) -> Any:
        """The FAISS index over the target keys."""
        if self._index is None:
            import faiss

            self._index = faiss.read_index(str(self.store.part.file(INDEX)))
            if self._index.ntotal != self.store.part.sizes["entries"]:
                raise StoreError(f"{self.store.path} is damaged: its index is not of its entries")
        self._index.nprobe = nprobe
        return self._index

    @cached_property
    def scale(self) -> float:
        """The median distance of two random keys."""
        return float(self.distance(torch.tensor(self.store.manifest.scale)))

    def query(self, states: Tensor) -> Tensor:
        """States as they are compared with the store's: in float32, and of length 1 where only direction counts."""
        states = states.float()
        return torch.nn.functional.normalize(states, dim=-1) if self.metric == "cosine" else states

    def distance(self, squared: Tensor) -> Tensor:
        """The store's metric of a squared distance; all search is by squared distances."""
        match self.metric:
            case "squared":
                return squared
            case "euclidean":
                return squared.sqrt()
            case "cosine":
                return squared / 2  # of vectors of length 1
