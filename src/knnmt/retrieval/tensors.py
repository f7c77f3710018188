"""A store's arrays as tensors on the device that translates: each moved there once, when a system first needs it."""

from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.errors import StoreError
from knnmt.search import pq
from knnmt.search.nearest import FAR, Buffers, compiles
from knnmt.store.lessons import LessonPart
from knnmt.store.manifest import INDEX, Metric
from knnmt.store.part import Part
from knnmt.store.store import Store

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

    @property
    def halves(self) -> bool:
        """Whether a compiled loop can read the states: they are kept as they are, in 16 bits, where loops compile."""
        plain = self.codebooks is None and self.steps is None and self.rows.dtype == torch.float16
        return plain and compiles(self.rows.device)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The states of these rows. (...) int64 to (..., d), float16 or float32."""
        found = self.rows[rows]
        if self.steps is not None:
            return found * self.steps[1] + self.steps[0]
        return found if self.codebooks is None else pq.decode(found, self.codebooks)

    def lengths(self, rows: Tensor | slice, states: Tensor) -> Tensor:
        """The squared lengths of these rows, whose states (..., d) are there already. (...)."""
        return self.norms[rows]

    def without(self, hidden: Tensor) -> "Keys":
        """The same, where those that are hidden (N,) are infinitely far from everything."""
        return Keys(self.rows, self.norms.masked_fill(hidden, FAR), self.codebooks, self.steps)


class SmallKeys(Keys):
    """States projected to few numbers, kept in bytes (N, p): |row − narrow(state)|² is the squared distance.

    projection: (d, p), and middle: (p,), from a state to steps; step: what a byte counts
    """

    def __init__(self, rows: Tensor, projection: Tensor, middle: Tensor, step: float) -> None:
        self.rows, self.step = rows, step
        self.projection, self.middle = step * projection, -step * middle

    @property
    def width(self) -> int:
        """The numbers of a state."""
        return self.rows.size(1)

    def __getitem__(self, rows: Tensor | slice) -> Tensor:
        """The narrow states of these rows. (...) int64 to (..., p) float32."""
        if isinstance(rows, slice):
            return self.rows[rows] * self.step
        found = self.rows.index_select(0, rows.flatten())  # many times as fast as an index
        return (found * self.step).view(*rows.shape, -1)

    def lengths(self, rows: Tensor | slice, states: Tensor) -> Tensor:
        """Taken from the states: to keep them would cost more room than to take them costs time."""
        return states.square().sum(dim=-1)

    def narrow(self, states: Tensor) -> Tensor:
        """States (..., d) as they are compared with these rows. (..., p) float32."""
        return torch.addmm(self.middle, states.flatten(0, -2), self.projection).view(*states.shape[:-1], -1)


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
    """The arrays of a store on a device: `tensors["link_offsets"]`.

    `left_out` are numbers of segments, the part's or those of lessons, that nothing may find. What is taught or removed
    in the store is taken up by `refresh`: then `removed` (E,) are the part's entries that are left out or removed;
    `hidden` (E,) those that a search of the part must not find, `removed` and those of lessons; and `taught` is what
    was taught and is not left out, to be searched beside it.
    """

    def __init__(self, store: Store, device: torch.device, left_out: Collection[int] = ()) -> None:
        self.store, self.device, self.left_out = store, device, frozenset(left_out)
        self.metric: Metric = store.manifest.metric
        self.buffers = Buffers(device)
        self._seen: tuple[tuple[Part, ...], int] | None = None
        self.refresh()

    def refresh(self) -> None:
        """Take up what the store has learnt and forgotten."""
        if self._seen == (self.store.parts, self.store.version):
            return
        if self._seen is None or self._seen[0] is not self.store.parts:
            if self._seen is not None and self.left_out:
                raise StoreError(
                    f"{self.store.path} was compacted or replaced while segments of it were left out, whose numbers "
                    "are others now: begin again"
                )
            self._moved: dict[str, Tensor] = {}
            self._norms: dict[str, Tensor] = {}
            self._small: dict[str, SmallKeys] = {}
            self._index: Any = None
            # the median distance of two random keys
            self.scale = float(self.distance(torch.tensor(self.store.scale)))
        self._seen = self.store.parts, self.store.version
        self._clusters: dict[str, Clusters] = {}
        self._whole_prototypes: Tensor | None = None
        self._hidden_segments: Tensor | None = None
        stored = self.store.sizes["segments"]
        gone = self.store.removed | {number for number in self.left_out if number < stored}
        self.removed = self._entries(gone)
        self.hidden = self._entries(gone | self.store.folded)
        taught = self.store.lesson_part
        taught = taught.without(self.left_out) if taught is not None else None
        self.taught = Taught(self, taught) if taught is not None else None

    def _entries(self, segments: set[int]) -> Tensor | None:
        """The entries of some segments of the part. (E,) bool, or None for none."""
        if not segments:
            return None
        chosen = np.zeros(self.store.sizes["segments"], bool)
        chosen[list(segments)] = True
        return torch.from_numpy(chosen.repeat(np.diff(self.store.parts[0]["target_offsets"]))).to(self.device)

    @property
    def arrays(self) -> "Part | Mapping[str, NDArray[Any]]":
        """The arrays as they are kept."""
        return self.store.parts[0]

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._moved:
            self._moved[name] = torch.from_numpy(self.arrays[name]).to(self.device)
        return self._moved[name]

    def keys(self, side: str) -> Keys:
        """The states of the `source` or the `target` side."""
        part = self.arrays
        if f"{side}_keys" in part:
            return Keys(self[f"{side}_keys"], self[f"{side}_norms"])
        if f"{side}_codes" in part:
            return Keys(self[f"{side}_codes"], self[f"{side}_norms"], self[f"{side}_codebooks"])
        raise StoreError(f"{self.store.path} was built without {side} keys, which this system needs: build it for that")

    def prototypes(self, side: str) -> Keys:
        """The `source` or `target` means of the prototypes."""
        name = f"proto_{side}"
        return Keys(self[name], self[f"{name}_norms"], steps=self[f"{name}_steps"])

    @property
    def whole_prototypes(self) -> Tensor | None:
        """Which prototypes have no entry that must not be found: what is left of a mean cannot be told. (P,) bool, or
        None where that is all of them."""
        if self._whole_prototypes is None and self.hidden is not None:
            counts, members = self["proto_counts"].long(), self["proto_members"].long()
            owner = torch.arange(len(counts), device=self.device).repeat_interleave(counts)
            whole = torch.ones(len(counts), dtype=torch.bool, device=self.device)
            self._whole_prototypes = whole.index_fill_(0, owner[self.hidden[members]], False)
        return self._whole_prototypes

    def small(self, side: str) -> SmallKeys:
        """The projected states of the `source` or `target` side."""
        name = f"small_{side}"
        if name not in self._small:
            step = float(self[f"{name}_step"][0])
            self._small[name] = SmallKeys(self[name], self[f"{name}_projection"], self[f"{name}_middle"], step)
        return self._small[name]

    @property
    def hidden_segments(self) -> Tensor | None:
        """The segments that have no entry that may be found. (segments,) bool, or None where all have one."""
        if self._hidden_segments is None and self.hidden is not None:
            left = torch.nn.functional.pad((~self.hidden).cumsum(0), (1, 0))[self["target_offsets"]]
            self._hidden_segments = left[1:] == left[:-1]
        return self._hidden_segments

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
            if self.hidden is not None:
                left = (~self.hidden[self[f"{lists}_entries"]]).cumsum(0)
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

            self._index = faiss.read_index(str(self.store.parts[0].file(INDEX)))
            if self._index.ntotal != self.store.sizes["entries"]:
                raise StoreError(f"{self.store.path} is damaged: its index is not of its entries")
        if hasattr(self._index, "nprobe"):  # that of a small store has no lists
            self._index.nprobe = nprobe
        return self._index

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


class Taught(Tensors):
    """What a store was taught, as tensors of the same names; `entries` (T,) are the numbers of its target keys."""

    def __init__(self, of: Tensors, lessons: LessonPart) -> None:
        self.store, self.device, self.metric, self.scale = of.store, of.device, of.metric, of.scale
        self.buffers, self.lessons, self.left_out = of.buffers, lessons, of.left_out
        self.removed = self.hidden = self.taught = None
        self._moved = {}
        self.entries = torch.from_numpy(lessons.entries).to(of.device)

    @property
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """The arrays of the lessons."""
        return self.lessons
