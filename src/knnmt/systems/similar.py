"""Similar: of each source token's type the c best tokens, by their own distance and by how similar their segments are
to the sentence (BM25); and all entries of the most similar segments.

States are projected to few numbers, each in a byte. p_kNN is the softmax over everything that the sentence sees.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.nearest import least, runs
from knnmt.search.rows import FAR, Keys, ProjectedRows, gather
from knnmt.store.schema import Array, declare, offsets
from knnmt.systems.chosen import as_rows, linked
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Defaults, Found, Neighbours, Source, System, merge
from knnmt.systems.view import View, none_visible

BEST = 128  # segments most similar to a sentence, in which the tokens of frequent types are looked for
OFFERED = 64  # candidate tokens of each source token, of which the best c are chosen
COMMON = 1000, 0.25  # types with more tokens than this, and than this share of the segments, are stop words
ALIKE = 2.0  # weight of segment similarity relative to token distance

ARRAYS = {
    # keys projected to few dimensions, one byte each
    "small_target": Array("int8", ("entries", "target_small")),
    "small_target_middle": Array("float32", ("target_small",)),
    "small_target_step": Array("float32", ("1",)),
    "small_target_projection": Array("float32", ("width", "target_small")),
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
    """All entries (B, N) that a sentence sees, padded with -1."""

    def __init__(self, view: View, entries: Tensor, settings: RetrievalSettings) -> None:
        super().__init__(view, settings)
        tokens = view["target_ids"][entries.clamp_min(0)].long()
        self.tokens = tokens.masked_fill(entries < 0, -1)
        self.groups = [
            (group, view.search.softmax(group.rows, group.local(entries), tokens))
            for group in _projections(view, "target")
        ]

    def offered(self) -> Tensor:
        """Their tokens."""
        return self.tokens

    def find(self, states: Tensor) -> Found:
        """All of them."""
        columns = []
        for group, softmax in self.groups:
            distances = softmax.distances(states, self.view.metric)
            entries = torch.where(softmax.numbers < 0, -1, softmax.numbers + group.start)
            columns.append((*(each[:, None].expand(distances.shape) for each in (entries, softmax.tokens)), distances))
        entries, tokens, distances = (torch.cat(column, dim=2) for column in zip(*columns, strict=True))
        return Found(entries, tokens, distances, distances.amin(dim=2), self.view.log_weights(entries))

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution."""
        summed, metric = len(self.groups) > 1, self.view.metric
        found = [softmax.shares(states, self.temperature, metric, summed=summed) for _, softmax in self.groups]
        if len(found) == 1:
            return Neighbours(*found[0][:3])
        tokens = torch.cat([each.tokens for each in found], dim=2)
        weighed = zip(found, self.groups, strict=True)
        scores = torch.cat([each.scores(group.weight) for each, (group, _) in weighed], dim=2)
        return Neighbours(*merge(tokens, scores), torch.stack([each.nearest for each in found]).amin(dim=0))

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        for _, softmax in self.groups:
            softmax.keep(sentences)


def select(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
    """What a sentence sees, by tokens and by segments."""
    assert settings.c is not None
    return All(view, near_entries(view, source, settings.c, settings.segments), settings)


def near_entries(view: View, source: Source, c: int, segments: int) -> Tensor:
    """The entries that each sentence sees, -1 for none. (B, N)."""
    batch = len(source.ids)
    sentence, types, states = source.tokens(view)
    similarity = _similarity(view, sentence, types, batch)
    best = _best_segments(similarity, BEST)
    tokens, there = _offered(view, best, sentence, types, OFFERED)
    distances = _distances(view, tokens, states)
    alike = similarity.flatten()[sentence[:, None] * similarity.size(1) + view["token_segments"][tokens]]
    tokens = _best_tokens(view, tokens, ~there, distances, alike, c)
    query, place = (tokens >= 0).nonzero(as_tuple=True)
    owner, entries = linked(view, sentence[query], tokens[query, place])
    owners, slot = (best[:, :segments] >= 0).nonzero(as_tuple=True)
    begin, size = view.runs("target_offsets", best[owners, slot])
    whole = view.visible(owners.repeat_interleave(size), runs(begin, size))
    return as_rows(torch.cat((owner, whole[0])), torch.cat((entries, whole[1])), batch, view.count("entries"))


def _similarity(view: View, sentence: Tensor, types: Tensor, batch: int) -> Tensor:
    """How similar each segment is to each sentence: BM25 over source types, as a share of the best. (B, segments).

    The shares of tokens are integers: their sum depends neither on the order of adding nor on the batch. Types that are
    nearly everywhere are left out, and segments without a visible entry are similar to nothing.
    """
    vocabulary, count = view.parts[0].sizes["source_vocabulary"], view.count("segments")
    distinct = (sentence * vocabulary + types).unique()
    owner, kinds = distinct // vocabulary, distinct % vocabulary
    starts, stops = view.ranges("type_offsets", kinds)
    hidden, visible = _hidden_segments(view)
    told = (stops - starts).sum(dim=1) <= max(COMMON[0], COMMON[1] * visible)
    scores = torch.zeros((batch, count), dtype=torch.int32, device=types.device)
    owner, starts, sizes = owner[told], starts[told], (stops - starts)[told]
    columns = view.blocks("token_segments"), view.blocks("token_shares"), view.starts("segments")
    for part, (segments, shares, first) in enumerate(zip(*columns, strict=False)):
        view.search.tally(scores[:, first:], owner, starts[:, part], sizes[:, part], segments, shares)
    if hidden is not None:
        scores.masked_fill_(hidden, 0)
    return scores / scores.amax(dim=1, keepdim=True).clamp_min(1)


def _best_segments(similarity: Tensor, count: int) -> Tensor:
    """The segments most similar to each sentence, best first, padded with -1. (B, up to count)."""
    padding = -similarity.size(1) % 64
    unlike = torch.nn.functional.pad(1.0 - similarity, (0, padding), value=2.0)
    unlike, best = least(unlike, min(count, similarity.size(1)))
    return best.masked_fill_(unlike >= 1.0, -1)


def _offered(view: View, best: Tensor, sentence: Tensor, types: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The candidate tokens of each source token, and which of them are there. Both (Q, most).

    Those of its type: all if they are so few, else the first of them in the sentence's best segments.
    """
    starts, stops = view.ranges("type_offsets", types)
    begin = starts + view.first("tokens")
    sizes = stops - starts
    total = sizes.sum(dim=1)
    offered = torch.zeros((len(types), most), dtype=torch.int64, device=types.device)
    there = torch.arange(most, device=types.device) < total[:, None]
    few = (total <= most).nonzero().flatten()
    offered[few.repeat_interleave(total[few]), runs(torch.zeros_like(few), total[few])] = runs(
        begin[few].flatten(), sizes[few].flatten()
    )
    frequent = (total > most).nonzero().flatten()
    if not len(frequent):
        return offered, there
    vocabulary = view.parts[0].sizes["source_vocabulary"]
    groups, group = (sentence[frequent] * vocabulary + types[frequent]).unique(return_inverse=True)
    owner, slot = (best >= 0).nonzero(as_tuple=True)
    first, lengths = view.runs("segment_starts", best[owner, slot])
    tokens = view["segment_tokens"][runs(first, lengths)]
    keys = _types(view, tokens) + owner.repeat_interleave(lengths) * vocabulary
    asked = torch.zeros(len(best) * vocabulary, dtype=torch.bool, device=types.device)
    asked[groups] = True
    kept = asked[keys]
    keys, order = keys[kept].sort(stable=True)  # the tokens of better segments stay in front
    tokens = tokens[kept][order]
    bounds = torch.searchsorted(keys, torch.stack((groups, groups + 1)))
    found = bounds[0][group], (bounds[1] - bounds[0])[group]
    places = torch.arange(most, device=types.device)
    there[frequent] = places < found[1][:, None]
    if len(tokens):
        offered[frequent] = tokens[(found[0][:, None] + places).clamp_max(len(tokens) - 1)]
    return offered.masked_fill_(~there, 0), there


def _types(view: View, tokens: Tensor) -> Tensor:
    """The types of stored tokens (n,)."""
    offsets = view.blocks("type_offsets")
    types = lambda part, rows: torch.searchsorted(offsets[part], rows, right=True) - 1  # noqa: E731
    return gather(tokens, view.starts("tokens"), types)


def _best_tokens(view: View, tokens: Tensor, missing: Tensor, distances: Tensor, alike: Tensor, count: int) -> Tensor:
    """The tokens of each row that are nearest, relative to the others, in the most similar segments.

    All (..., P), to (..., up to count), -1 where there are fewer.
    """
    hidden, _ = _hidden_segments(view)
    if hidden is not None:
        missing = missing | hidden[view["token_segments"][tokens]]
    distances = distances.masked_fill(missing, 0.0)
    typical = distances.sum(dim=-1, keepdim=True) / (~missing).sum(dim=-1, keepdim=True).clamp_min(1)
    rank = distances / typical.clamp_min(1e-6) + ALIKE * (1.0 - alike)
    rank, places = least(rank.masked_fill_(missing, FAR), min(count, rank.size(-1)))
    return tokens.gather(-1, places).masked_fill_(rank == FAR, -1)


def _hidden_segments(view: View) -> tuple[Tensor | None, int]:
    """The segments without a visible entry, (segments,) bool, or None where all have one; and how many have one."""

    def make() -> tuple[Tensor | None, int]:
        every = torch.arange(view.count("segments"), device=view.device)
        if view.hidden is None:
            return None, len(every)
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


def _distances(view: View, tokens: Tensor, states: Tensor) -> Tensor:
    """The squared distances of stored tokens (Q, P) to states (Q, d), by their projections. (Q, P)."""
    found = torch.zeros(tokens.shape, device=tokens.device)
    for group in _projections(view, "source"):
        local = group.local(tokens)
        apart = group.rows[local.clamp_min(0)] - group.rows.blocks[0].project(states)[:, None]
        found = torch.where(local >= 0, torch.linalg.vector_norm(apart, dim=-1).square_(), found)
    return found


SYSTEM = System(
    name="similar",
    summary="sums over entries of similar segments, by projected states",
    arrays=(
        "target_ids", "target_offsets", "type_offsets", "link_offsets", "link_entries",
        *(name for name in ARRAYS if name != "type_segments"),  # which only merging parts needs
    ),
    select=select,
    # a small store has little that is near: what is farther than this made translations worse than base MT's
    defaults=Defaults(weight=0.8, temperature=1 / 20, reach=1 / 4, c=8),
    takes_k=False,
    takes_c=True,
)  # fmt: skip
