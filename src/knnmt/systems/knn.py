"""kNN-MT (Khandelwal et al. 2021): every state is compared with every entry of the store.

With `index` a FAISS index, which approximates, finds the nearest instead.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from knnmt.errors import StoreError
from knnmt.optional import require
from knnmt.search.nearest import least
from knnmt.search.rows import FAR
from knnmt.store.manifest import INDEX
from knnmt.store.part import Part
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Found, Source, System
from knnmt.systems.view import View


class Whole(Candidates):
    """The k nearest entries of all. Every sentence sees the same."""

    def __init__(self, view: View, settings: RetrievalSettings) -> None:
        super().__init__(view, settings)
        self.keys = view.derived("visible target keys", lambda: view.keys("target").without(view.hidden))
        self.tokens = view["target_ids"].whole()
        self.count = min(self.k or len(self.keys), len(self.keys))

    def find(self, states: Tensor) -> Found:
        """The nearest of all entries."""
        squared, entries = (each.unflatten(0, states.shape[:2]) for each in self.search(states.flatten(0, 1)))
        distances, tokens = self.view.distance(squared), self.tokens[entries.clamp_min(0)].long()
        return Found(entries, tokens, distances, distances.amin(dim=-1), self.view.log_weights(entries))

    def search(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Squared distances and numbers of the entries nearest to queries (Q, d), -1 for none. Both (Q, k)."""
        return self.view.search.nearest(self.keys, None, queries, self.count)


class Indexed(Whole):
    """The k nearest entries by the FAISS index of each part; it searches on the CPU."""

    static = False

    def __init__(self, view: View, settings: RetrievalSettings) -> None:
        super().__init__(view, settings)
        self.indices = view.kept("FAISS indices", lambda: [_index(part) for part in view.parts])
        self.starts = view.starts("entries")
        self.parameters = [
            _parameters(
                index, settings.nprobe, None if view.hidden is None else view.hidden[start : start + index.ntotal]
            )
            for index, start in zip(self.indices, self.starts, strict=False)
        ]

    def search(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """The nearest in the lists that are searched."""
        asked, found = queries.cpu().numpy(), []
        for index, start, parameters in zip(self.indices, self.starts, self.parameters, strict=False):
            squared, entries = index.search(asked, min(self.count, index.ntotal), params=parameters)
            found.append((squared, np.where(entries < 0, -1, entries + start)))
        squared, entries = (torch.from_numpy(np.concatenate(each, axis=1)) for each in zip(*found, strict=True))
        squared, places = least(squared.masked_fill(entries < 0, FAR), min(self.count, squared.size(1)))
        entries = entries.gather(1, places).masked_fill(squared == FAR, -1)
        return squared.to(queries.device), entries.to(queries.device)


def select(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """Nothing is selected: every sentence sees the whole store."""
    return Indexed(view, settings) if settings.index else Whole(view, settings)


def _index(part: Any) -> Any:
    """The FAISS index over the target keys of a part."""
    assert isinstance(part, Part)
    faiss = require("faiss", extra="faiss")
    index = faiss.read_index(str(part.file(INDEX)))
    if index.ntotal != part.sizes["entries"]:
        raise StoreError(f"{part.folder} is corrupt: its FAISS index does not have one row per entry")
    return index


def _parameters(index: Any, nprobe: int, hidden: Tensor | None) -> Any:
    """How an index is searched: in so many lists, among the entries that are not hidden (E,)."""
    faiss = require("faiss", extra="faiss")
    given: dict[str, Any] = {}
    if hidden is not None:
        given["sel"] = faiss.IDSelectorBitmap(np.packbits(~hidden.cpu().numpy(), bitorder="little"))
    if hasattr(index, "nprobe"):  # that of a small store has no lists
        return faiss.SearchParametersIVF(nprobe=nprobe, **given)
    return faiss.SearchParameters(**given) if given else None


SYSTEM = System(
    name="knn",
    summary="compares every state with every entry",
    arrays=("target_ids", "target_keys", "target_norms"),
    select=select,
    takes_nprobe=True,
)
