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
from knnmt.systems.system import Found, Lookup, Neighbours, Source, System, distribution
from knnmt.systems.view import View


class Whole:
    """The k nearest entries of all."""

    def __init__(self, view: View, k: int, temperature: float) -> None:
        self.view, self.k, self.temperature = view, k, temperature
        self.keys = view.derived("visible target keys", lambda: _visible(view))

    def find(self, states: Tensor) -> Found:
        """The nearest of all entries."""
        queries = states.flatten(0, 1)
        starts = torch.zeros((len(queries), len(self.keys.blocks)), dtype=torch.int64, device=queries.device)
        stops = starts + torch.tensor([len(block) for block in self.keys.blocks], device=queries.device)
        count = min(self.k, len(self.keys))
        squared, entries = self.view.search.nearest(self.keys, (starts, stops), queries, count)
        return self.found(*(each.unflatten(0, states.shape[:2]) for each in (squared, entries)))

    def found(self, squared: Tensor, entries: Tensor) -> Found:
        """What a search found. Both (B, K, k), nearest first, -1 for none."""
        distances = self.view.distance(squared)
        tokens = self.view["target_ids"][entries.clamp_min(0)].long()
        return Found(entries, tokens, distances, distances.amin(dim=-1), self.view.log_weights(entries))

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution."""
        return distribution(self.find(states), self.temperature)

    def keep(self, sentences: Tensor) -> None:
        """All sentences see the same."""


class Indexed(Whole):
    """The k nearest entries by the FAISS index of each part; it searches on the CPU."""

    def __init__(self, view: View, k: int, temperature: float, nprobe: int) -> None:
        super().__init__(view, k, temperature)
        self.indices = view.kept("FAISS indices", lambda: [_index(part) for part in view.parts])
        self.starts = view.starts("entries")
        self.parameters = [
            _parameters(index, nprobe, None if view.hidden is None else view.hidden[start : start + index.ntotal])
            for index, start in zip(self.indices, self.starts, strict=False)
        ]

    def find(self, states: Tensor) -> Found:
        """The nearest in the lists that are searched."""
        queries, found = states.flatten(0, 1).cpu().numpy(), []
        for index, start, parameters in zip(self.indices, self.starts, self.parameters, strict=False):
            squared, entries = index.search(queries, min(self.k, index.ntotal), params=parameters)
            found.append((squared, np.where(entries < 0, -1, entries + start)))
        squared, entries = (torch.from_numpy(np.concatenate(each, axis=1)) for each in zip(*found, strict=True))
        squared, places = least(squared.masked_fill(entries < 0, FAR), min(self.k, squared.size(1)))
        found_entries = entries.gather(1, places).masked_fill(squared == FAR, -1)
        return self.found(*(each.to(states.device).unflatten(0, states.shape[:2]) for each in (squared, found_entries)))


def select(view: View, source: Source, settings: RetrievalSettings) -> Lookup:
    """Nothing is selected: every sentence sees the whole store."""
    assert settings.k is not None
    assert settings.temperature is not None
    if settings.index:
        return Indexed(view, settings.k, settings.temperature, settings.nprobe)
    return Whole(view, settings.k, settings.temperature)


def _visible(view: View) -> Any:
    keys = view.keys("target")
    return keys if view.hidden is None else keys.without(view.hidden)


def _index(part: Any) -> Any:
    """The FAISS index over the target keys of a part."""
    assert isinstance(part, Part)
    faiss = require("faiss", extra="faiss")
    index = faiss.read_index(str(part.file(INDEX)))
    if index.ntotal != part.sizes["entries"]:
        raise StoreError(f"{part.folder} is corrupt: its FAISS index has not as many rows as there are entries")
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
