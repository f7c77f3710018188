"""References shown to a model beside a store: what the states of their tokens find, and how likely that makes them.

The model runs once. From what was found then, the likelihood of the references follows under any k, temperature and
weight; and so does what a gate is trained with.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.corpus.segment import Segment
from knnmt.model.checkpoint import Model
from knnmt.model.represent import batches, padded
from knnmt.model.transformer import States
from knnmt.retrieval.gate import features
from knnmt.retrieval.mix import weights
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.systems.settings import RetrievalSettings
from knnmt.tune.gate import Lesson

BATCH_TOKENS = 2048


@dataclass(frozen=True)
class Seen:
    """What the states of all reference tokens found: distances and matches (P, k), the distance that λ falls with and
    p_MT (P,); log_counts (P, k), or () where each of those found stands for itself."""

    distances: Tensor
    matches: Tensor
    felt: Tensor
    p_mt: Tensor
    log_counts: Tensor

    def p_knn(self, k: int | None, temperature: float) -> Tensor:
        """p_kNN of each reference token. (P,). Of prototypes, which are ranked by T too, it is nearly that."""
        if k is None or not self.log_counts.ndim:  # the nearest come first
            scores, matches = self.log_counts - self.distances[:, :k] / temperature, self.matches[:, :k]
        else:
            scores = self.log_counts - self.distances / temperature
            scores, places = scores.topk(min(k, scores.size(1)))
            matches = self.matches.gather(1, places)
        return (scores.softmax(dim=-1).nan_to_num() * matches).sum(dim=-1)

    def likelihood(self, settings: RetrievalSettings, p_knn: Tensor | None = None) -> float:
        """The mean log-likelihood of a reference token under complete settings; `p_knn` is theirs, if it is known."""
        if p_knn is None:
            assert settings.temperature is not None
            p_knn = self.p_knn(settings.k, settings.temperature)
        weight = weights(self.felt, settings)
        return float((weight * p_knn + (1 - weight) * self.p_mt).clamp_min(1e-9).log().mean())


class Reference(NamedTuple):
    """Some references as the model sees them, beside what their sentences may see of the store.

    source: ids and mask (B, S) and encoder states (B, S, d) of their sentences; states of their tokens, (B, T, d) each;
    logits (B, T, V); wanted: (B, T), the tokens; there: (B, T), whether one is
    """

    look: SentenceLookup
    source: tuple[Tensor, Tensor, Tensor]
    states: States
    logits: Tensor
    wanted: Tensor
    there: Tensor
    segments: list[int]

    @property
    def query(self) -> Tensor:
        """The states that are looked up. (B, T, d)."""
        return self.look.query(self.states)

    def of_wanted(self, log_p: Tensor) -> Tensor:
        """The probability of each token. (B, T, V) to (B, T)."""
        return log_p.gather(2, self.wanted[:, :, None])[:, :, 0].exp()


Shown = tuple[Retriever, Sequence[Segment]]
"""Segments, and the retriever that they are looked up by."""


@torch.inference_mode()
def see(model: Model, shown: Sequence[Shown], advance: Callable[[int], None]) -> Seen | None:
    """Look up all states of the references; None where all of them are too long for the model."""
    rows: list[tuple[Tensor, ...]] = []
    counts: list[Tensor | None] = []
    for retriever, segments in shown:
        for some in show(model, retriever, segments):
            found = some.look.lookup.find(some.query)
            matches = found.tokens == some.wanted[:, :, None]
            p_mt = some.of_wanted(some.logits.log_softmax(dim=-1))
            kept = found.distances, matches, some.look.lookup.felt(found.nearest), p_mt
            rows.append(tuple(each[some.there].cpu() for each in kept))
            counts.append(
                found.log_counts.expand_as(found.distances)[some.there].cpu() if found.log_counts.ndim else None
            )
            advance(len(some.segments))
    if not rows:
        return None
    distances, matching, felt, p = zip(*rows, strict=True)
    filled = [torch.zeros_like(row) if some is None else some for row, some in zip(distances, counts, strict=True)]
    return Seen(
        distances=_joined(distances, torch.inf),
        matches=_joined(matching, False),
        felt=torch.cat(felt),
        p_mt=torch.cat(p),
        log_counts=_joined(filled, 0.0) if any(some is not None for some in counts) else torch.zeros(()),
    )


@torch.inference_mode()
def lesson(model: Model, shown: Sequence[Shown], advance: Callable[[int], None]) -> Lesson:
    """What a gate sees of each reference token in a step that wants it, by the functions of a step."""
    rows: list[tuple[Tensor, ...]] = []
    before = 0  # segments of other retrievers
    for retriever, segments in shown:
        for some in show(model, retriever, segments):
            found = some.look.lookup.neighbours(some.query)
            fixed = some.look.weight(found, some.logits, some.logits[:, :, 0])  # by distance
            open_ = found.nearest < torch.inf
            p_knn = p_of(found.tokens, found.log_p, some.wanted)
            heard = some.look.heard(some.query, found.nearest)
            if heard is not None:  # a lesson has a weight of its own, whatever the gate says
                open_ &= heard.weight == 0
            log_p = some.logits.log_softmax(dim=-1)
            given = features(found, log_p, torch.zeros_like(log_p[:, :, 0]), some.look.view.scale)
            numbers = before + torch.tensor(some.segments, device=given.device)[:, None].expand(open_.shape)
            columns = given, p_knn, some.of_wanted(log_p), open_, fixed, numbers
            rows.append(tuple(each[some.there].cpu() for each in columns))
            advance(len(some.segments))
        before += len(segments)
    return Lesson(*(torch.cat(column) for column in zip(*rows, strict=True)))


def show(model: Model, retriever: Retriever, segments: Sequence[Segment]) -> Iterator[Reference]:
    """Show the references to the model, a batch at a time; those that are too long for it are left out."""
    special, network = model.special, model.transformer
    sources = model.tokenizer.encode_source([segment.source for segment in segments])
    targets = model.tokenizer.encode_target([segment.target for segment in segments])
    targets = [[*special.prefix, *ids] for ids in targets]
    room = network.architecture.max_positions - 1
    fitting = [
        n for n, (s, t) in enumerate(zip(sources, targets, strict=True)) if len(s) <= model.max_source and len(t) < room
    ]
    for rows in batches([max(len(sources[n]), len(targets[n]) + 1) for n in fitting], BATCH_TOKENS):
        some = [fitting[row] for row in rows]
        ids, mask = padded([sources[n] for n in some], special.pad, model.device)
        given, _ = padded([[special.start, *targets[n]] for n in some], special.pad, model.device)
        wanted, there = padded([[*targets[n], special.end] for n in some], special.pad, model.device)
        there[:, : len(special.prefix)] = False
        encoded = network.encode(ids, mask)
        states = network.force(given, encoded)
        look = retriever.look(ids, mask, encoded.states)
        yield Reference(look, (ids, mask, encoded.states), states, network.logits(states.output), wanted, there, some)


def p_of(tokens: Tensor, log_p: Tensor, wanted: Tensor) -> Tensor:
    """p of the wanted token (...), given the tokens that have any (..., k), which may be there several times."""
    return torch.where(tokens == wanted[..., None], log_p, -torch.inf).amax(dim=-1).exp()


def _joined(parts: Sequence[Tensor], filler: float) -> Tensor:
    """Rows of several lengths as one table, padded."""
    longest = max(part.size(1) for part in parts)
    return torch.cat([torch.nn.functional.pad(part, (0, longest - part.size(1)), value=filler) for part in parts])
