"""Similar: for each source token, the c best training tokens of its type, by their own distance and by how similar
their segments are to the sentence (BM25); and all entries of the most similar segments.

States are projected to few numbers, each in a byte or half of one. p_kNN is the softmax over all candidates of the
sentence; those of segments that are less similar to it count as farther away.
"""

import itertools
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.entries import PartLinks
from knnmt.search.matches import ALIKE, Asked, Index, Limits, PartIndex
from knnmt.search.metric import Decay
from knnmt.search.mix import Falling, Scores
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Seen
from knnmt.store.schema import Array, declare, offsets
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Defaults, Found, Neighbours, Source, System
from knnmt.systems.view import View, none_visible

WORK = 1 << 15  # postings that a sentence walks to find similar segments
COMMON = 1000, 0.25  # types with more tokens than this, and than this share of the segments, are stop words
BEST = 256  # segments that are scored in full, and in which the tokens of frequent types are looked for
OFFERED = 128  # candidate tokens of each source token
LIKENESS = 2.0  # weight of segment similarity relative to token distance
TAKEN, LEAST = 120, 6  # tokens that all source tokens of a sentence take, about; and each one, at least
BY_STATE = 1.0  # of c: so many more are taken by distance alone
FARTHER = 0.07  # of the median distance of random keys: an entry of a segment with nothing in common is so much farther
SHORT, LONG, STRETCH = 10, 30, 2.0  # tokens of a sentence: from short to long, λ reaches up to so many times as far
SMALL, LARGE = 2_000, 10_000  # segments of a store: in a small one λ reaches no farther, in a large one all of that
SHY = 0.75  # so far λ reaches in a small store, whatever the length
NEVER = (1 << 32) - 1  # behind all frequencies of types

ARRAYS = {
    # keys projected to few numbers: on the source side a byte each; on the target side two numbers in each byte, or one
    # in stores of format 2 and before
    "small_target": Array("int8", ("entries", "target_small")),
    "small_target_middle": Array("float32", ("target_numbers",)),
    "small_target_step": Array("float32", ("1",)),
    "small_target_projection": Array("float32", ("width", "target_numbers")),
    "small_source": Array("int8", ("tokens", "source_small")),
    "small_source_middle": Array("float32", ("source_small",)),
    "small_source_step": Array("float32", ("1",)),
    "small_source_projection": Array("float32", ("width", "source_small")),
    # the source tokens of each segment, for BM25
    "token_segments": Array("int32", ("tokens",), below="segments"),
    "token_shares": Array("int16", ("tokens",)),  # what each adds to its segment's score
    "type_segments": Array("int32", ("source_vocabulary",)),  # how many segments have a token of each type
    "segment_starts": offsets("segments", into="tokens"),
    "segment_tokens": Array("int32", ("tokens",), below="tokens"),
}
declare(ARRAYS)


class All(Candidates):
    """All entries (B, N) that a sentence sees, padded with -1, and how similar their segments are. lengths: (B,), its
    source tokens."""

    by_sentence = ("stretch",)

    def __init__(
        self, view: View, entries: Tensor, alike: Tensor, lengths: Tensor, settings: RetrievalSettings
    ) -> None:
        super().__init__(view, settings)
        self.stretch = _stretch(lengths, _hidden_segments(view)[1])[:, None]
        tokens = view["target_ids"][entries.clamp_min(0)].long()
        self.tokens = tokens.masked_fill(entries < 0, -1)
        farther = (1.0 - alike / ALIKE) * (FARTHER * view.typical)
        groups, decay = _projections(view, "target"), Decay(view.metric, self.temperature)
        own = [entries if len(groups) == 1 else group.local(entries) for group in groups]
        self.groups = [
            (group, view.search.softmax(group.rows, Seen(numbers, tokens, farther), decay))
            for group, numbers in zip(groups, own, strict=True)
        ]

    def offered(self) -> Tensor:
        """Their tokens."""
        return self.tokens

    def find(self, states: Tensor) -> Found:
        """All of them."""
        columns = []
        for group, softmax in self.groups:
            distances = softmax.distances(states)
            numbers, tokens, _ = softmax.listed()
            entries = torch.where(numbers < 0, -1, numbers + group.start)
            columns.append((*(each[:, None].expand(distances.shape) for each in (entries, tokens)), distances))
        entries, tokens, distances = (torch.cat(column, dim=2) for column in zip(*columns, strict=True))
        return Found(entries, tokens, distances, distances.amin(dim=2), self.view.log_weights(entries))

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution."""
        found = [softmax.shares(states, summed=len(self.groups) > 1) for _, softmax in self.groups]
        if len(found) == 1:
            return Neighbours(*found[0][:3])
        tokens = torch.cat([each.tokens for each in found], dim=2)
        weighed = zip(found, self.groups, strict=True)
        scores = torch.cat([each.scores(group.weight) for each, (group, _) in weighed], dim=2)
        nearest = torch.stack([each.nearest for each in found]).amin(dim=0)
        return Neighbours(*self.view.search.merge(tokens, scores), nearest)

    def mix(self, states: Tensor, scores: Scores, falling: Falling) -> tuple[Tensor, Tensor] | None:
        """Mix their distribution into logits in one loop, where there is one."""
        return None if len(self.groups) > 1 else self.groups[0][1].mix(states, scores, falling, self.stretch)

    def felt(self, nearest: Tensor) -> Tensor:
        """Less than it is in a long sentence."""
        return nearest / self.stretch

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        super().keep(sentences)
        for _, softmax in self.groups:
            softmax.keep(sentences)


def select(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """What a sentence sees, by tokens and by segments."""
    found = near_entries(view, source, settings.c, settings.segments)
    return All(view, *found, source.mask.sum(dim=1), settings)


def near_entries(view: View, source: Source, c: int | None, segments: int) -> tuple[Tensor, Tensor]:
    """The entries that each sentence sees, -1 for none, and how similar their segments are, up to ALIKE. Both (B, N).

    c: None for as many as suit a sentence's length
    """
    batch = len(source.ids)
    sentence, types, states = source.tokens(view)
    taken = _suited(source.mask.sum(dim=1)) if c is None else torch.full((batch,), c, device=types.device)
    limits = Limits(BEST, OFFERED, taken, (BY_STATE * taken).ceil().long(), LIKENESS)
    found = view.search.match(_index(view), _asked(view, sentence, types, states), limits)
    whole = {"segments": found.segments[:, :segments], "segments_alike": found.segments_alike[:, :segments]}
    return view.search.entries(_links(view), view.hidden, sentence, found._replace(**whole))


def _suited(lengths: Tensor) -> Tensor:
    """c for sentences of these lengths (B,): a short one has few tokens to find something by. (B,)."""
    return ((TAKEN + lengths - 1) // lengths.clamp_min(1)).clamp_min(LEAST)


def _stretch(lengths: Tensor, segments: int) -> Tensor:
    """How much farther λ reaches in sentences of these lengths (B,), in a store of so many segments. (B,).

    What a large store has for a long sentence can be trusted farther away. Short strings came out fluent and wrong, and
    so did all texts with a small store, which has little that is near.
    """
    share = min(1.0, max(0.0, (segments - SMALL) / (LARGE - SMALL)))
    longer = 1.0 + share * (STRETCH - 1.0) * ((lengths - SHORT) / (LONG - SHORT)).clamp(0.0, 1.0)
    return longer * (SHY + share * (1.0 - SHY))


def _index(view: View) -> Index:
    """The stored tokens, with what each adds to the BM25 score of its segment. The shares are integers: their sum
    depends neither on the order of adding nor on the batch. Segments without a visible entry are not found."""
    names = ("token_segments", "token_shares", "small_source", "segment_starts", "segment_tokens")

    def make() -> list[PartIndex]:
        columns = *(view.blocks(name) for name in names), view.starts("tokens")[:-1], view.starts("segments")[:-1]
        return list(itertools.starmap(PartIndex, zip(*columns, strict=True)))

    parts = view.kept("index of tokens", make)
    return Index(parts, view.count("tokens"), view.count("segments"), _hidden_segments(view)[0])


def _links(view: View) -> list[PartLinks]:
    """The links of all parts."""
    names, counted = ("link_offsets", "link_entries", "target_offsets"), ("tokens", "segments", "entries")

    def make() -> list[PartLinks]:
        columns = *(view.blocks(name) for name in names), *(view.starts(each)[:-1] for each in counted)
        return list(itertools.starmap(PartLinks, zip(*columns, strict=True)))

    return view.kept("links of tokens", make)


def _asked(view: View, sentence: Tensor, types: Tensor, states: Tensor) -> Asked:
    """The tokens of sentences, and the postings that these walk: those of their types, the rarest first, as many as the
    budget of work allows; the last type as far as it goes. Types that are nearly everywhere are left out."""
    vocabulary = view.parts[0].sizes["source_vocabulary"]
    distinct, kind = (sentence * vocabulary + types).unique(return_inverse=True)
    owner = distinct // vocabulary
    starts, stops = view.ranges("type_offsets", distinct % vocabulary)
    sizes = stops - starts
    total = sizes.sum(dim=1)
    told = total <= max(COMMON[0], COMMON[1] * _hidden_segments(view)[1])
    order = (owner << 32 | total.masked_fill(~told, NEVER)).sort(stable=True).indices
    before = total[order].cumsum(0) - total[order]  # of all sentences; now of each one's own
    before -= before[torch.searchsorted(owner, owner)]
    before = torch.empty_like(before).scatter_(0, order, before)[:, None] + sizes.cumsum(dim=1) - sizes
    walked = torch.minimum(sizes, (WORK - before).clamp_min_(0)).masked_fill_(~told[:, None], 0)
    queries, steps = [], []
    for group in _projections(view, "source"):
        block = group.rows.blocks[0]
        queries += [block.project(states).div_(block.step)] * len(group.rows.blocks)
        steps += [block.step] * len(group.rows.blocks)
    return Asked(sentence, kind, queries, steps, owner, starts, sizes, walked, told)


def _hidden_segments(view: View) -> tuple[Tensor | None, int]:
    """The segments without a visible entry, (segments,) bool, or None where all have one; and how many have one."""

    def make() -> tuple[Tensor | None, int]:
        if view.hidden is None:
            return None, view.count("segments")
        every = torch.arange(view.count("segments"), device=view.device)
        hidden = none_visible(view.hidden, *view.runs("target_offsets", every))
        return hidden, int((~hidden).sum())

    return view.derived("hidden segments", make)


class Projection(NamedTuple):
    """Rows of consecutive parts with the same projection and weight: those of one store. start: their first number."""

    start: int
    weight: float
    rows: Keys[ProjectedRows]

    def local(self, numbers: Tensor) -> Tensor:
        """Numbers (...) as numbers of these rows, -1 for others."""
        local = numbers - self.start
        return local.masked_fill((local < 0) | (local >= len(self.rows)), -1)


def _projections(view: View, side: str) -> list[Projection]:
    """The projected states of the source or target side, by projection."""
    names = (f"small_{side}", f"small_{side}_projection", f"small_{side}_middle", f"small_{side}_step")

    def make() -> list[Projection]:
        found: list[Projection] = []
        shared: tuple[Tensor, ...] = ()
        weights = view.weights or (1.0,) * len(view.parts)
        for weight, rows, *projection in zip(weights, *(view.blocks(name) for name in names), strict=True):
            block = ProjectedRows(rows, projection[0], projection[1], float(projection[2][0]))
            if found and found[-1].weight == weight and all(map(torch.equal, shared, projection)):
                found[-1] = found[-1]._replace(rows=Keys([*found[-1].rows.blocks, block]))
            else:
                start = found[-1].start + len(found[-1].rows) if found else 0
                found.append(Projection(start, weight, Keys([block])))
            shared = tuple(projection)
        return found

    return view.kept(f"projected {side} states", make)


SYSTEM = System(
    name="similar",
    summary="sums over entries of similar segments, by projected states",
    arrays=(
        "target_ids", "target_offsets", "type_offsets", "link_offsets", "link_entries",
        *(name for name in ARRAYS if name != "type_segments"),  # which only merging parts needs
    ),
    select=select,
    # a small store has little that is near: what is farther than this made translations worse than base MT's;
    # and with a store the best translations by mean log-probability are some 4% shorter than without
    defaults=Defaults(weight=0.9, temperature=1 / 20, reach=1 / 3, c=None, longer=1.4),
    takes_k=False,
    takes_c=True,
)  # fmt: skip
