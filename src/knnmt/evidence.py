"""Why a word was chosen: what the model thought of it, what the store did, and the training segments behind that.

Nothing is recorded while decoding. A finished translation is shown to the model once more, all its tokens at a time,
and each state is looked up just as it was in the search.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch

from knnmt.model.checkpoint import Model
from knnmt.model.represent import padded
from knnmt.retrieval.session import Retriever
from knnmt.store.memories import AnyStore
from knnmt.text.terms import Term


@dataclass(frozen=True)
class Neighbour:
    """A token of a training segment that spoke for some token of a translation."""

    segment: int  # its number in the store
    source: str
    before: str  # the segment's target text, cut around the token
    token: str  # nothing, if it is the end
    after: str
    origin: str
    id: str | None
    distance: float
    weight: float  # its share of p_kNN
    memory: str = ""  # the name of the store that it is from

    @property
    def target(self) -> str:
        """The whole target text."""
        return self.before + self.token + self.after


@dataclass(frozen=True)
class TokenEvidence:
    """A token of a translation: p = λ·p_kNN + (1 − λ)·p_MT, and who spoke for what, the heaviest first."""

    token: str  # the text that it adds; none for the end
    p: float
    p_mt: float
    p_knn: float
    weight: float  # λ
    neighbours: tuple[Neighbour, ...]
    term: str = ""  # the target term, where the token is there by the glossary

    @property
    def memory(self) -> float:
        """How much of the token's probability came from the store, from 0 to 1."""
        return self.weight * self.p_knn / self.p if self.p > 0 else 0.0


@torch.inference_mode()
def explain(
    model: Model, retriever: Retriever, source: Sequence[int], tokens: Sequence[int], most: int = 8
) -> tuple[TokenEvidence, ...]:
    """The evidence for each token of a hypothesis, prefix left out, with its `most` heaviest neighbours."""
    special, network = model.special, model.transformer
    ids, mask = padded([source], special.pad, model.device)
    encoded = network.encode(ids, mask)
    look = retriever.look(ids, mask, encoded.states)
    states = network.force(torch.tensor([[special.start, *tokens[:-1]]], device=model.device), encoded)
    logits = network.logits(states.output)
    chosen = torch.tensor(tokens, device=model.device)
    normaliser = logits.logsumexp(dim=-1)
    p_mt = (logits[0].gather(1, chosen[:, None])[:, 0] - normaliser[0]).exp()
    found = look.sources(states, logits, normaliser)
    shares, weight = found.shares[0], found.weight[0]
    p_knn = shares.masked_fill(found.tokens[0] != chosen[:, None], 0.0).sum(dim=1)
    p = weight * p_knn + (1 - weight) * p_mt
    columns = [each.float().cpu().tolist() for each in (p, p_mt, p_knn, weight)]
    listed = _listed(retriever.store, model, found.entries[0], found.distances[0], shares, most)
    every = zip(model.tokenizer.cut(tokens), *columns, listed, strict=True)
    return tuple(TokenEvidence(*each) for each in list(every)[len(special.prefix) :])


def by_glossary(
    evidence: tuple[TokenEvidence, ...], places: Sequence[tuple[int, int, Term]]
) -> tuple[TokenEvidence, ...]:
    """The evidence, with tokens marked that are there by the glossary; places: of terms, in the text of all tokens."""
    marked, at = [], 0
    for each in evidence:
        end = at + len(each.token)
        begin = end - len(each.token.lstrip())
        term = next((term.target for start, stop, term in places if start < end and begin < stop), "")
        marked.append(replace(each, term=term))
        at = end
    return tuple(marked)


def _listed(
    store: AnyStore, model: Model, entries: torch.Tensor, distances: torch.Tensor, shares: torch.Tensor, most: int
) -> list[tuple[Neighbour, ...]]:
    """The heaviest neighbours of each token with their texts. All (T, k)."""
    shares, order = shares.topk(min(most, shares.size(1)), dim=1)
    entries, distances = entries.gather(1, order), distances.gather(1, order)
    rows: list[tuple[Neighbour, ...]] = []
    for some, far, share in zip(entries.tolist(), distances.tolist(), shares.tolist(), strict=True):
        there = [place for place, entry in enumerate(some) if entry >= 0]
        segments, positions = store.where(np.array([some[place] for place in there], np.int64))
        rows.append(
            tuple(
                _neighbour(store, model, segment, position, far[place], share[place])
                for place, segment, position in zip(there, segments.tolist(), positions.tolist(), strict=True)
            )
        )
    return rows


def _neighbour(store: AnyStore, model: Model, number: int, position: int, distance: float, share: float) -> Neighbour:
    segment = store.segment(number)
    pieces = model.tokenizer.cut(store.target_ids(number))
    before, token, after = "".join(pieces[:position]), pieces[position], "".join(pieces[position + 1 :])
    texts = segment.source, before, token, after, segment.origin, segment.id
    return Neighbour(number, *texts, distance, share, store.memory_of(number))
