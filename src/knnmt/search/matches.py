"""The stored tokens that match those of sentences: of the same type, near by their states, in similar segments.

A sentence walks a bounded number of postings, and keeps only the segments that it comes across: time and memory do not
grow with the store. The best of these segments are then scored in full, by their own tokens.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.nearest import least, runs
from knnmt.search.rows import FAR


class PartIndex(NamedTuple):
    """The tokens of a part: the segment of each (tokens,) int32, what it adds to that segment's score (tokens,) int16,
    and its projected state (tokens, p) int8; and the tokens of each segment, ascending, with where they begin.

    first_token, first_segment: their numbers in the store
    """

    segments: Tensor
    shares: Tensor
    states: Tensor
    starts: Tensor
    tokens: Tensor
    first_token: int
    first_segment: int


class Index(NamedTuple):
    """All parts; how many tokens and segments they have; and the segments that are not found (segments,), or None."""

    parts: Sequence[PartIndex]
    tokens: int
    segments: int
    hidden: Tensor | None


class Asked(NamedTuple):
    """The tokens of B sentences, Q in all, and their distinct types, U in all, both sentence by sentence.

    sentence: (Q,); kind: (Q,), which of the U each is of; states: (Q, p) of each part, in steps of its bytes, and step:
    what these count. owner: (U,), the sentence; starts, sizes: (U, parts), the stored tokens of a type, starts rising
    in a sentence; walked: (U, parts), how many of them are walked as postings; told: (U,), whether the type counts in
    the scores of segments
    """

    sentence: Tensor
    kind: Tensor
    states: Sequence[Tensor]
    step: Sequence[float]
    owner: Tensor
    starts: Tensor
    sizes: Tensor
    walked: Tensor
    told: Tensor


class Limits(NamedTuple):
    """best: segments of a sentence that are scored in full, and in which the tokens of frequent types are looked for;
    offered: candidates of a token; by_both, by_state: (B,), how many of them are taken by distance and segment, and by
    distance alone; alike: the weight of segment similarity relative to distance."""

    best: int
    offered: int
    by_both: Tensor
    by_state: Tensor
    alike: float


class Matches(NamedTuple):
    """tokens: (Q, M), stored tokens for each token of the sentences, padded with -1; segments: (B, best), the most
    similar ones, best first, padded with -1. Each with how similar its segment is, compared with the most similar one,
    from 0 to ALIKE, int32, and anything for padding."""

    tokens: Tensor
    tokens_alike: Tensor
    segments: Tensor
    segments_alike: Tensor


BITS = 16  # of a similarity
ALIKE = (1 << BITS) - 1  # that of the most similar segment
Compare = Callable[[Tensor, Tensor, Tensor], Tensor]
"""The squared distances of states (Q, p) to rows (N, p) in bytes, by their numbers (Q, P); 0 for -1. (Q, P)."""


def squared(rows: Tensor, states: Tensor, numbers: Tensor) -> Tensor:
    """A `Compare` by torch."""
    query, place = (numbers >= 0).nonzero(as_tuple=True)
    found = torch.zeros(numbers.shape, device=numbers.device)
    apart = rows.index_select(0, numbers[query, place]) - states[query]
    found[query, place] = torch.linalg.vector_norm(apart, dim=1).square_()
    return found


def match(index: Index, asked: Asked, limits: Limits, compare: Compare = squared) -> Matches:
    """Find the matches by torch."""
    tally = _Tally(index, asked, limits)
    tokens = _offered(index, asked, limits, tally)
    there = tokens >= 0
    where = tokens.clamp_min(0)
    segments = _gathered(index, where, lambda part, rows: part.segments[rows].long() + part.first_segment)
    if index.hidden is not None:
        there &= ~index.hidden[segments]
    distances = _distances(index, asked, tokens.masked_fill(~there, -1), compare)
    typical = distances.sum(dim=1, keepdim=True) / there.sum(dim=1, keepdim=True).clamp_min(1)
    similarity = tally.similarity(asked.sentence, segments)
    rank = distances / typical.clamp_min(1e-6) + limits.alike * (1.0 - similarity)
    alike = (ALIKE * similarity).round_().int()
    chosen, alikes = [], []
    for values, counts in ((rank, limits.by_both), (distances, limits.by_state)):
        most = min(int(counts.max()), values.size(1))
        values, places = least(values.masked_fill(~there, FAR), most)
        beyond = torch.arange(most, device=values.device) >= counts[asked.sentence][:, None]
        chosen.append(tokens.gather(1, places).masked_fill_(beyond | (values == FAR), -1))
        alikes.append(alike.gather(1, places))
    every = torch.arange(len(tally.best), device=tokens.device)
    best_alike = (ALIKE * tally.similarity(every, tally.best)).round_().int()
    return Matches(torch.cat(chosen, dim=1), torch.cat(alikes, dim=1), tally.best, best_alike)


class _Tally:
    """The segments that sentences come across, and their scores: `best` of each sentence (B, best), -1 for none."""

    def __init__(self, index: Index, asked: Asked, limits: Limits) -> None:
        batch = len(limits.by_both)
        self.index, self.asked, self.batch = index, asked, batch
        self.count = max(1, index.segments)
        keys, values = [], []
        for number, part in enumerate(index.parts):
            at = runs(asked.starts[:, number], asked.walked[:, number])
            found = part.segments[at].long() + part.first_segment
            keys.append(asked.owner.repeat_interleave(asked.walked[:, number]) * self.count + found)
            value = part.shares[at].int()
            values.append(value if index.hidden is None else value.masked_fill_(index.hidden[found], 0))
        narrow = torch.int32 if batch * self.count < 1 << 31 else torch.int64  # which are sorted in half the time
        distinct, place = torch.cat(keys).to(narrow).unique(return_inverse=True)
        self.keys = distinct.long()
        self.scores = torch.zeros(len(self.keys), dtype=torch.int32, device=self.keys.device)
        self.scores.index_add_(0, place, torch.cat(values))
        chosen = self._first(self.keys // self.count, self.scores, limits.best).sort().values
        self._score_in_full(chosen)
        at = self._first(self.keys[chosen] // self.count, self.scores[chosen], limits.best)
        order = chosen[at]
        owner = self.keys[order] // self.count
        counts = owner.bincount(minlength=batch)
        rank = runs(torch.zeros_like(counts), counts)
        self.rank = torch.empty_like(at).scatter_(0, at, rank)  # of the segments that have the hits
        self.highest = torch.ones(batch, dtype=torch.int32, device=place.device)
        self.highest.scatter_reduce_(0, owner, self.scores[order], "amax")
        self.best = torch.full((batch, limits.best), -1, device=place.device)
        self.best[owner, rank] = self.keys[order] % self.count

    def _first(self, owner: Tensor, scores: Tensor, most: int) -> Tensor:
        """The places of the highest scores (n,) above 0, up to `most` an owner (n,), owner by owner; of equals, the
        lower place first."""
        order = ((owner << 32) - scores).sort(stable=True).indices
        counts = owner.bincount(minlength=self.batch)
        order = order[runs(torch.zeros_like(counts), counts) < most]
        return order[scores[order] > 0]

    def _score_in_full(self, chosen: Tensor) -> None:
        """Add what the tokens add that were not walked, and keep which of them are of the sentence's types."""
        segments, asked = self.keys[chosen] % self.count, self.asked
        of, token, number, kind = hits(self.index, asked, self.keys[chosen] // self.count, segments)
        self.hits = of, token, kind
        for part, own in enumerate(self.index.parts):
            within = token - own.first_token - asked.starts[kind, part]
            left = (number == part) & asked.told[kind] & (within >= asked.walked[kind, part])
            shares = own.shares[token[left] - own.first_token].int()
            self.scores.index_add_(0, chosen[of[left]], shares)

    def similarity(self, sentence: Tensor, segments: Tensor) -> Tensor:
        """The scores of segments (n, m) for sentences (n,), as a share of the best segment's. (n, m) float32."""
        if not len(self.keys):
            return torch.zeros(segments.shape, device=segments.device)
        wanted = sentence[:, None] * self.count + segments
        place = torch.searchsorted(self.keys, wanted).clamp_max_(len(self.keys) - 1)
        scores = torch.where(self.keys[place] == wanted, self.scores[place], 0)
        return scores / self.highest[sentence][:, None]


def hits(index: Index, asked: Asked, owner: Tensor, segments: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The tokens of segments (n,) that are of a type of the sentence `owner` (n,), segment by segment.

    Of each: which of the n it is in, its number, its part, and which of the U types it has.
    """
    device = owner.device
    first = torch.tensor([part.first_segment for part in index.parts], device=device)
    number = torch.bucketize(segments, first[1:], right=True)
    begin, size = torch.empty_like(segments), torch.empty_like(segments)
    for part, own in enumerate(index.parts):
        here = number == part
        local = segments[here] - own.first_segment
        begin[here], size[here] = own.starts[local], own.starts[local + 1] - own.starts[local]
    of, at = torch.arange(len(segments), device=device).repeat_interleave(size), runs(begin, size)
    number = number[of]
    token = torch.empty_like(at)
    for part, own in enumerate(index.parts):
        here = number == part
        token[here] = own.tokens[at[here]].long() + own.first_token
    # where the types' tokens begin, by sentence, then number: a token is of the last type that it does not precede
    starts = asked.starts + torch.tensor([part.first_token for part in index.parts], device=device)
    keys, order = (asked.owner[:, None] * index.tokens + starts).T.flatten().sort(stable=True)
    place = torch.searchsorted(keys, owner[of] * index.tokens + token, right=True) - 1
    kind = order[place.clamp_min(0)] % max(1, len(asked.owner))
    inside = token - starts[kind, number]
    hit = (place >= 0) & (asked.owner[kind] == owner[of]) & (inside >= 0) & (inside < asked.sizes[kind, number])
    return of[hit], token[hit], number[hit], kind[hit]


def _offered(index: Index, asked: Asked, limits: Limits, tally: _Tally) -> Tensor:
    """The candidates of each token, padded with -1. (Q, offered).

    Those of its type: all if they are so few, else the first of them in the sentence's best segments.
    """
    device, most = asked.kind.device, limits.offered
    kinds, total = len(asked.owner), asked.sizes.sum(dim=1)
    offered = torch.full((kinds, most), -1, device=device)
    few = (total <= most).nonzero().flatten()
    begin = asked.starts + torch.tensor([part.first_token for part in index.parts], device=device)
    numbers = runs(begin[few].flatten(), asked.sizes[few].flatten())
    offered[few.repeat_interleave(total[few]), runs(torch.zeros_like(few), total[few])] = numbers
    of, token, kind = tally.hits
    frequent = total[kind] > most
    of, token, kind = of[frequent], token[frequent], kind[frequent]
    order = (kind * limits.best + tally.rank[of]).sort(stable=True).indices  # the tokens of better segments in front
    kind, token = kind[order], token[order]
    counts = kind.bincount(minlength=kinds)
    place = runs(torch.zeros_like(counts), counts)
    offered[kind[place < most], place[place < most]] = token[place < most]
    return offered[asked.kind]


def _gathered(index: Index, numbers: Tensor, take: Callable[[PartIndex, Tensor], Tensor]) -> Tensor:
    """What `take` gives for stored tokens (...), part by part. (...)."""
    if len(index.parts) == 1:
        return take(index.parts[0], numbers)
    first = torch.tensor([part.first_token for part in index.parts[1:]], device=numbers.device)
    number, found = torch.bucketize(numbers, first, right=True), torch.zeros_like(numbers)
    for which, part in enumerate(index.parts):
        here = number == which
        found[here] = take(part, numbers[here] - part.first_token)
    return found


def _distances(index: Index, asked: Asked, numbers: Tensor, compare: Compare) -> Tensor:
    """The squared distances of stored tokens (Q, P) to the tokens' states; 0 for -1. (Q, P)."""
    found = torch.zeros(numbers.shape, device=numbers.device)
    for part, states, step in zip(index.parts, asked.states, asked.step, strict=True):
        local = numbers - part.first_token
        local.masked_fill_((numbers < 0) | (local < 0) | (local >= len(part.segments)), -1)
        found += compare(part.states, states, local) * step**2
    return found
