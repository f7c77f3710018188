"""A store's arrays as tensors on the device that translates: each moved there once, when a system first needs it."""

from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.datastore import quantize
from knnmt.datastore.format import INDEX, Metric
from knnmt.datastore.store import Datastore
from knnmt.errors import StoreError
from knnmt.retrieval.nearest import Buffers

MEASURED = 1 << 12  # means whose lengths are computed at a time


class Keys:
    """States of a store, by row, whether they are kept as they are or product-quantized; and their squared lengths."""

    def __init__(
        self, rows: Tensor, norms: Tensor, codebooks: Tensor | None = None, steps: Tensor | None = None
    ) -> None:
        self.rows, self.norms, self.codebooks, self.steps = rows, norms, codebooks, steps

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def width(self) -> int:
        """The numbers of a state."""
        return self.rows.size(1) if self.codebooks is None else self.codebooks.size(0) * self.codebooks.size(2)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The states of these rows. (...) int64 to (..., d), float16 or float32."""
        found = self.rows[rows]
        if self.steps is not None:
            return found * self.steps[1] + self.steps[0]
        return found if self.codebooks is None else quantize.decode(found, self.codebooks)


class Clusters(NamedTuple):
    """The clusters that can be selected: those with an entry that may be found, C of them.

    numbers: (C+1,), their numbers in the store, and -1 behind the last; means: (C, d) of their source tokens;
    offsets: (V+1,), where each type's begin; ranges: (Q, 2), of each coarse cluster
    """

    numbers: Tensor
    means: Keys
    offsets: Tensor
    ranges: Tensor


class Tensors:
    """The arrays of a store on a device: `tensors["link_offsets"]`; `removed` are entries that nothing may find."""

    def __init__(self, store: Datastore, device: torch.device, removed: NDArray[np.bool_] | None = None) -> None:
        self.store, self.device = store, device
        self.metric: Metric = store.manifest.metric
        self.buffers = Buffers(device)
        self.removed = None if removed is None else torch.from_numpy(removed).to(device)
        self._moved: dict[str, Tensor] = {}
        self._clusters: dict[str, Clusters] = {}
        self._norms: dict[str, Tensor] = {}
        self._index: Any = None

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._moved:
            self._moved[name] = torch.from_numpy(self.store.part[name]).to(self.device)
        return self._moved[name]

    def keys(self, side: str) -> Keys:
        """The states of the `source` or the `target` side."""
        part = self.store.part
        if f"{side}_keys" in part:
            return Keys(self[f"{side}_keys"], self[f"{side}_norms"])
        if f"{side}_codes" in part:
            return Keys(self[f"{side}_codes"], self[f"{side}_norms"], self[f"{side}_codebooks"])
        raise StoreError(f"{self.store.path} was built without {side} keys, which this system needs: build it for that")

    def prototypes(self, side: str) -> Keys:
        """The `source` or `target` means of the prototypes."""
        name = f"proto_{side}"
        return Keys(self[name], self[f"{name}_norms"], steps=self[f"{name}_steps"])

    @cached_property
    def whole_prototypes(self) -> Tensor:
        """Which prototypes have lost none of their entries: what is left of a mean cannot be told. (P,) bool."""
        counts, members = self["proto_counts"].long(), self["proto_members"].long()
        removed = torch.zeros(len(members), dtype=torch.bool) if self.removed is None else self.removed[members]
        owner = torch.arange(len(counts), device=self.device).repeat_interleave(counts)
        return torch.ones(len(counts), dtype=torch.bool, device=self.device).index_fill_(0, owner[removed], False)

    def means(self, name: str) -> Keys:
        """The means of clusters as keys; there are few, and their lengths are computed once."""
        if name not in self._norms:
            norms = torch.empty(len(self[name]), device=self.device)
            for some, into in zip(self[name].split(MEASURED), norms.split(MEASURED), strict=True):
                into.copy_(some.float().square().sum(-1))
            self._norms[name] = norms
        return Keys(self[name], self._norms[name])

    def clusters(self, lists: Literal["link", "ranking"]) -> Clusters:
        """The clusters with an entry among those that they link to, or that they rank: a removal can empty some."""
        if lists not in self._clusters:
            bounds = self["ranking_offsets"] if lists == "ranking" else self["link_offsets"][self["cluster_starts"]]
            if self.removed is not None:
                left = (~self.removed[self[f"{lists}_entries"]]).cumsum(0)
                bounds = torch.nn.functional.pad(left, (1, 0))[bounds]
            filled = bounds[1:] > bounds[:-1]
            means = self.means("cluster_source")
            place = torch.nn.functional.pad(filled.cumsum(0), (1, 0))
            self._clusters[lists] = Clusters(
                torch.nn.functional.pad(filled.nonzero().flatten(), (0, 1), value=-1),
                means if bool(filled.all()) else Keys(means.rows[filled], means.norms[filled]),
                place[self["cluster_offsets"]],
                place[self["coarse_ranges"]],
            )
        return self._clusters[lists]

    def index(self, nprobe: int) -> Any:
        """The FAISS index over the target keys."""
        if self._index is None:
            import faiss

            self._index = faiss.read_index(str(self.store.part.file(INDEX)))
            if self._index.ntotal != self.store.part.sizes["entries"]:
                raise StoreError(f"{self.store.path} is damaged: its index is not of its entries")
        if hasattr(self._index, "nprobe"):  # that of a small store has no lists
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
