"""A sentence's session with a store: candidates are selected once, and mixed into the model's scores at every step."""

from collections.abc import Collection
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.errors import StoreError
from knnmt.model.normalise import normalise
from knnmt.model.transformer import States
from knnmt.retrieval.gate import Gate, Purpose, require_gate
from knnmt.retrieval.lessons import Heard, LessonLookup, lessons_for
from knnmt.retrieval.live import LiveStore
from knnmt.retrieval.mix import falling, learned, weights
from knnmt.search.mix import Scores
from knnmt.search.nearest import BySentence
from knnmt.store.memories import AnyStore
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Neighbours, Source, System
from knnmt.systems.table import automatic, require_system
from knnmt.trace import NO_TRACE, Trace

TEXTS = ("text", "text_offsets", "target_ids", "target_offsets")  # opened by every system, for evidence


class Retriever:
    """A store, ready to be looked up by a model on its device.

    gate: gives λ where the settings say that it is learned; left_out: numbers of the store's segments that nothing may
    find; live: that of another retriever of the store, to share, with what it leaves out. `given` are the settings as
    they were given, `settings` the same with all defaults filled in.
    """

    def __init__(
        self,
        store: AnyStore,
        device: torch.device,
        settings: RetrievalSettings,
        *,
        gate: Gate | None = None,
        left_out: Collection[int] = (),
        live: LiveStore | None = None,
    ) -> None:
        name = automatic(store) if settings.system == "auto" else settings.system
        self.store, self.system = store, require_system(name)
        self.system.check(store, settings)
        if settings.adapt == "learned":
            gate = require_gate(gate, Purpose(name, store.manifest.key, store.manifest.metric)).on(device)
        self.live = live or LiveStore(store, device, left_out)
        self.gate, self.given = gate, settings.model_copy(update={"system": name})
        self.settings = self.system.complete(settings, self.live.view.scale)
        _open(store, self.system)

    def length_penalty(self, own: float) -> float:
        """That of a search with this store, given the model's own, which is base MT's."""
        given = self.settings.length_penalty
        if self.settings.silent:
            return own
        return own * self.system.defaults.longer if given is None else given

    def look(self, ids: Tensor, mask: Tensor, states: Tensor, trace: Trace = NO_TRACE) -> "SentenceLookup":
        """What sentences may see. ids, mask: (B, S); states: (B, S, d), of the encoder."""
        self.live.refresh()
        source, taught = Source(ids, mask, states), self.live.taught
        lookup = self.system.select(self.live.view, source, self.settings)
        if taught is None or self.settings.weight == 0:  # an explicit λ = 0 is base MT
            return SentenceLookup(self, lookup, None, trace)
        return SentenceLookup(self, lookup, lessons_for(taught, source), trace)


class Sources(NamedTuple):
    """Where p comes from at each step: p = weight·p_kNN + (1 − weight)·p_MT, lessons and parts taken together.

    entries, tokens, distances and shares of p_kNN: (B, K, k); weight: (B, K)
    """

    entries: Tensor
    tokens: Tensor
    distances: Tensor
    shares: Tensor
    weight: Tensor


class SentenceLookup(BySentence):
    """A batch of sentences in the search: mixes what their decoder states find into the model's scores.

    lookup: in the store's parts, by the system; taught: among the lessons, where there are any
    """

    by_sentence = "lookup", "taught"

    def __init__(self, retriever: Retriever, lookup: Candidates, taught: LessonLookup | None, trace: Trace) -> None:
        self.lookup, self.taught, self.trace = lookup, taught, trace
        self.view, self.settings, self.gate = retriever.live.view, retriever.settings, retriever.gate
        self.key, self.learned = retriever.store.manifest.key, self.settings.adapt == "learned"
        self.falling = falling(self.settings)
        self.places: Tensor | None = None  # of a shortlist

    @property
    def static(self) -> bool:
        """Whether a step on a GPU asks nothing of the host, so that it can be replayed."""
        return self.lookup.static

    @property
    def normalises(self) -> bool:
        """Whether `mix` finds the normaliser by itself where it gets None, on a CPU with compiled loops."""
        return True

    def mix(self, states: States, logits: Tensor, normaliser: Tensor | None, over: Tensor | None = None) -> Tensor:
        """Change logits (B, K, V) in place; the result is their new normaliser (B, K). over: (B,) bool, sentences of
        which nothing is wanted any more."""
        with self.trace.stage("lookup"):
            query = self.query(states)
            scores = Scores(logits, normaliser, self.places, over)
            mixed = None if self.learned else self.lookup.mix(query, scores, self.falling)
            found = self.lookup.neighbours(query) if mixed is None else None
        if found is not None:
            normaliser = normalise(logits) if normaliser is None else normaliser
            found = found._replace(tokens=self._placed(found.tokens))
            weight = self.weight(found, logits, normaliser)
            mixed = self.view.search.mix(logits, normaliser, found.tokens, found.log_p, weight), found.nearest
        assert mixed is not None
        normaliser, nearest = mixed
        with self.trace.stage("lookup"):
            heard = self.heard(query, nearest)
        if heard is not None:
            tokens, log_p = heard.distribution(self.view.search)
            normaliser = self.view.search.mix(logits, normaliser, self._placed(tokens), log_p, heard.weight)
        return normaliser

    def offered(self) -> Tensor | None:
        """The target tokens that each sentence may find, -1 for none. (B, N), or None where that may be any."""
        found = self.lookup.offered()
        if found is None or self.taught is None:
            return found
        return torch.cat((found, self.taught.lookup.offered()), dim=1)

    def narrow(self, places: Tensor) -> None:
        """From now on, logits are those of a shortlist with all tokens offered. places: (V,) int64, as it has them."""
        self.places = places

    def _placed(self, tokens: Tensor) -> Tensor:
        """Where the logits of tokens are."""
        return tokens if self.places is None else self.places[tokens]

    def query(self, states: States) -> Tensor:
        """What is looked up. (B, K, d)."""
        return self.view.query(states.key(self.key))

    def heard(self, query: Tensor, nearest: Tensor) -> Heard | None:
        """The lessons that states hear beside the nearest entry of the parts (B, K); None where surely none."""
        if self.taught is None:
            return None
        heard = self.taught.hear(query, nearest)
        silent = heard.weight.device.type == "cpu" and not bool(heard.weight.any())  # elsewhere to ask costs more
        return None if silent else heard

    def weight(self, found: Neighbours, logits: Tensor, normaliser: Tensor) -> Tensor:
        """λ of each beam (B, K), given what it found and p_MT, as logits (B, K, V) and their normaliser (B, K)."""
        if self.learned and self.gate is not None:
            return learned(found, logits, normaliser, self.gate, self.view.scale)
        return weights(self.lookup.felt(found.nearest), self.settings)

    def sources(self, states: States, logits: Tensor, normaliser: Tensor) -> Sources:
        """What `mix` would mix in, entry by entry."""
        query = self.query(states)
        found, neighbours = self.lookup.find(query), self.lookup.neighbours(query)
        shares = torch.nan_to_num(found.scores(self.lookup.temperature).softmax(dim=-1))
        weight = self.weight(neighbours, logits, normaliser)
        heard = self.heard(query, neighbours.nearest)
        if heard is None:
            return Sources(found.entries, found.tokens, found.distances, shares, weight)
        whole = 1.0 - (1.0 - heard.weight) * (1.0 - weight)
        of_lessons = torch.where(whole > 0, heard.weight / whole, 0.0)[:, :, None]
        sides = (found, (1.0 - of_lessons) * shares), (heard.found, of_lessons * heard.shares())
        columns = ((side.entries, side.tokens, side.distances, some) for side, some in sides)
        entries, tokens, distances, shares = (torch.cat(pair, dim=2) for pair in zip(*columns, strict=True))
        return Sources(entries, tokens, distances, shares, whole)


def _open(store: AnyStore, system: System) -> None:
    """Open all arrays that a system needs: what is missing or corrupt is told now, and what is mapped stays readable
    when a compaction removes the files."""
    for part in store.parts:
        for name in system.arrays:
            if not part.provides(name):
                raise StoreError(
                    f"{part.folder.parent} was built without {name}, which {system.name} needs: build it again for that"
                )
            for stored in part.stored_as(name):
                part[stored]
        for name in TEXTS:
            if name in part:
                part[name]
