"""What of the store a sentence may see: chosen once, from the states of its source tokens.

Fast sees the entries linked to the c nearest training tokens of each source token's type; the clustered systems see
the nearest cluster of each; `similar` takes into account how much the tokens' segments are like the sentence. A token
of a type that was never stored selects nothing.
"""

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from knnmt.retrieval.tensors import Clusters, Keys, Tensors
from knnmt.search.nearest import FAR, Buffers, Table, least, pack, runs, unpack
from knnmt.systems.settings import RetrievalSettings

LARGE_TYPE = 30_000  # tokens of a type from which only those of its nearest clusters are compared
GATHERED = 1 << 18  # rows that are copied at a time, to be compared
COARSE_PROBE = 8  # coarse clusters whose clusters are compared, where a type has two levels
BEST = 128  # segments that are most like a sentence, in which the tokens of frequent types are looked for
OFFERED = 64  # tokens that a source token chooses c from
COMMON = 1000, 0.25  # tokens of a type, and times as many as segments, from which it does not tell segments apart
ALIKE = 2.0  # how much the likeness of segments counts beside that of tokens
ENTRY, SLOT = 32, 16  # bits for the number of an entry or a cluster, and for that of a cluster in its sentence


class Source(NamedTuple):
    """Encoded sentences: ids (B, S), mask (B, S), states (B, S, d)."""

    ids: Tensor
    mask: Tensor
    states: Tensor


class Selection(NamedTuple):
    """What each sentence sees, as rows of numbers in rising order, filled up with -1.

    entries: (B, N) int64; clusters: (B, C) int64, in the systems that choose clusters; slots: (B, N), which of its
    sentence's clusters an entry is taken from, where it is listed once for each.
    """

    entries: Tensor
    clusters: Tensor
    slots: Tensor


def everything(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """kNN-MT chooses nothing: every sentence sees the whole store."""
    nothing = source.ids.new_empty((len(source.ids), 0))
    return Selection(nothing, nothing, nothing)


def near_tokens(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """Fast: the entries linked to the c nearest training tokens of each source token's type."""
    sentence, types, states = _tokens(tensors, source)
    rows = _nearest_tokens(tensors, types, states, settings)
    owner, tokens = sentence.repeat_interleave(rows.size(1)), rows.flatten()
    entries = _rows(*_entries_of(tensors, owner[tokens >= 0], tokens[tokens >= 0]), len(source.ids))
    return everything(tensors, source, settings)._replace(entries=entries)


def near_clusters(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """Faster: the nearest cluster of each source token."""
    return everything(tensors, source, settings)._replace(clusters=_clusters(tensors, source, "ranking"))


def near_prototypes(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """Prototypes: of each source token's type, the c whose source means are nearest."""
    sentence, types, states = _tokens(tensors, source)
    keys, offsets = tensors.prototypes("source"), tensors["proto_offsets"]
    rows = _nearest_in_groups(tensors.buffers, states, types, offsets, keys, settings.seen)
    owner, numbers = sentence.repeat_interleave(rows.size(1)), rows.flatten()
    there = numbers >= 0
    if tensors.whole_prototypes is not None:
        there &= tensors.whole_prototypes[numbers]
    chosen = _rows(owner[there], numbers[there], len(source.ids))
    return everything(tensors, source, settings)._replace(entries=chosen)


def near_segments(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """Similar: of each source token's type the c best by their own likeness and that of their segments; and all of the
    segments that are most like the sentence."""
    batch = len(source.ids)
    sentence, types, states = _tokens(tensors, source)
    likeness = _likeness(tensors, sentence, types, batch)
    best = _best_segments(likeness, BEST)
    tokens, there = _offered(tensors, best, sentence, types, OFFERED)
    small = tensors.small("source")
    distances = torch.linalg.vector_norm(small[tokens] - small.narrow(states)[:, None], dim=-1).square_()
    alike = likeness.flatten()[sentence[:, None] * likeness.size(1) + tensors["token_segments"][tokens]]
    tokens = _best_tokens(tensors, tokens, ~there, distances, alike, settings.seen)
    query, slot = (tokens >= 0).nonzero(as_tuple=True)
    owner, entries = _entries_of(tensors, sentence[query], tokens[query, slot])
    owners, segments = (best[:, : settings.segments] >= 0).nonzero(as_tuple=True)
    whole = _entries_in(tensors, owners, best[owners, segments])
    rows = _rows(torch.cat((owner, whole[0])), torch.cat((entries, whole[1])), batch)
    return everything(tensors, source, settings)._replace(entries=rows)


def near_members(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """Fast + clustered source: the entries linked to any member of those clusters."""
    clusters = _clusters(tensors, source, "link")
    sentence, _, tokens = _members(tensors, clusters)
    entries = _rows(*_entries_of(tensors, sentence, tokens), len(source.ids))
    return everything(tensors, source, settings)._replace(entries=entries, clusters=clusters)


def near_members_by_cluster(tensors: Tensors, source: Source, settings: RetrievalSettings) -> Selection:
    """Faster without cached distances: the same, each entry once for every cluster that it is in."""
    clusters = _clusters(tensors, source, "link")
    sentence, slot, tokens = _members(tensors, clusters)
    place, entries = _entries_of(tensors, sentence << SLOT | slot, tokens)
    rows = _rows(place >> SLOT, (place & ((1 << SLOT) - 1)) << ENTRY | entries, len(source.ids))
    there = rows >= 0
    entries, slots = rows & ((1 << ENTRY) - 1), rows >> ENTRY
    return Selection(entries.masked_fill_(~there, -1), clusters, slots.masked_fill_(~there, -1))


# --------------------------------------------------------------------------------------------------------- tokens


def _tokens(tensors: Tensors, source: Source) -> tuple[Tensor, Tensor, Tensor]:
    """The sentence, type and state of each source token, padding left out."""
    sentence, position = source.mask.nonzero(as_tuple=True)
    return sentence, source.ids[sentence, position], tensors.query(source.states[sentence, position])


def _nearest_tokens(tensors: Tensors, types: Tensor, states: Tensor, settings: RetrievalSettings) -> Tensor:
    """The rows of the c nearest stored tokens of the same type, -1 where there are fewer. (Q,), (Q, d) to (Q, c)."""
    offsets, keys = tensors["type_offsets"], tensors.keys("source")
    sizes = offsets[types + 1] - offsets[types]
    large = (sizes >= LARGE_TYPE) & ("cluster_offsets" in tensors.arrays)  # what was taught has no clusters
    rows = _nearest_in_groups(tensors.buffers, states, types, offsets, keys, settings.seen, skip=large)
    if bool(large.any()):
        rows[large] = _nearest_in_large_types(tensors, types[large], states[large], settings)
    return rows


def _nearest_in_large_types(tensors: Tensors, types: Tensor, states: Tensor, settings: RetrievalSettings) -> Tensor:
    """The c nearest tokens among those of the type's nearest clusters. (Q,), (Q, d) to (Q, c)."""
    buffers, keys, starts, count = tensors.buffers, tensors.keys("source"), tensors["cluster_starts"], settings.seen
    offsets, means = tensors["cluster_offsets"], tensors.means("cluster_source")
    probe = min(settings.nprobe, int((offsets[types + 1] - offsets[types]).max()))
    clusters = _nearest_in_groups(buffers, states, types, offsets, means, probe)
    if keys.halves:
        return _nearest_in_clusters(keys, starts, clusters, states, count)
    found = torch.full((len(types), count), -1, device=types.device)
    sizes = torch.where(clusters < 0, 0, starts[clusters + 1] - starts[clusters]).sum(dim=1)
    for some in torch.arange(len(types), device=types.device).split(max(1, GATHERED // int(sizes.max()))):
        query, _, members = _members(tensors, clusters[some])
        tokens = _rows(query, members, len(some))
        near = Table(buffers, keys, tokens.clamp_min(0), tokens < 0)
        squared, places = near.least(states[some, None], count)
        nearest = tokens.gather(1, places[:, 0]).masked_fill_(squared[:, 0] == FAR, -1)
        found[some, : nearest.size(1)] = nearest
    return found


def _nearest_in_clusters(keys: Keys, starts: Tensor, clusters: Tensor, states: Tensor, count: int) -> Tensor:
    """The tokens nearest to states (Q, d) in their clusters (Q, P), -1 for none, which begin at `starts`. (Q, count).

    Each cluster is read once for all that ask for it.
    """
    from knnmt.search import halves

    query, slot = (clusters >= 0).nonzero(as_tuple=True)
    order = clusters[query, slot].argsort(stable=True)
    query, slot = query[order], slot[order]
    asked, asking = clusters[query, slot].unique_consecutive(return_counts=True)
    near = torch.full((*clusters.shape, count), halves.NOTHING)
    near[query, slot] = pack(*halves.search(keys, starts[asked], starts[asked + 1], states[query], asking, count))
    squared, tokens = unpack(near.flatten(1).topk(count, dim=1, largest=False).values)
    return tokens.masked_fill_(squared == FAR, -1)


def _clusters(tensors: Tensors, source: Source, lists: Literal["link", "ranking"]) -> Tensor:
    """The clusters nearest to the tokens of each sentence, of those that have entries in these lists. Gives (B, C)."""
    sentence, types, states = _tokens(tensors, source)
    clusters = tensors.clusters(lists)
    numbers = clusters.numbers[_nearest_clusters(tensors, clusters, types, states)]
    return _rows(sentence[numbers >= 0], numbers[numbers >= 0], len(source.ids))


def _nearest_clusters(tensors: Tensors, clusters: Clusters, types: Tensor, states: Tensor) -> Tensor:
    """The nearest cluster of each token's type, -1 for a type without any. (Q,), (Q, d) to (Q,)."""
    levels = tensors["coarse_offsets"]
    deep = levels[types + 1] > levels[types]  # types with so many clusters that these are clustered again
    offsets, means = clusters.offsets, clusters.means
    found = _nearest_in_groups(tensors.buffers, states, types, offsets, means, 1, skip=deep)[:, 0]
    if bool(deep.any()):
        found[deep] = _nearest_of_many(tensors, clusters, types[deep], states[deep])
    return found


def _nearest_of_many(tensors: Tensors, clusters: Clusters, types: Tensor, states: Tensor) -> Tensor:
    """The nearest cluster where there are two levels: in the nearest of the coarse clusters. (Q,), (Q, d) to (Q,)."""
    coarse_means, levels = tensors.means("coarse_source"), tensors["coarse_offsets"]
    coarse = _nearest_in_groups(tensors.buffers, states, types, levels, coarse_means, COARSE_PROBE)
    query, slot = (coarse >= 0).nonzero(as_tuple=True)
    ranges = clusters.ranges[coarse[query, slot]]
    if states.device.type == "cpu":  # each coarse cluster is read once for all that ask for it, not once for each
        bounds, groups = clusters.ranges.flatten(), 2 * coarse[query, slot]
        nearest = _nearest_in_groups(tensors.buffers, states[query], groups, bounds, clusters.means, 1)
        ranges = torch.cat((nearest, nearest + (nearest >= 0)), dim=1)
    begin, size = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
    owner, numbers = query.repeat_interleave(size), runs(begin, size)
    distances = (clusters.means[numbers] - states[owner]).square().sum(-1)
    none = torch.iinfo(torch.int64).max
    best = torch.full((len(types),), none, device=types.device)
    best.scatter_reduce_(0, owner, pack(distances, numbers), "amin")
    return torch.where(best < none, unpack(best)[1], -1)


def _nearest_in_groups(
    buffers: Buffers,
    queries: Tensor,
    groups: Tensor,
    offsets: Tensor,
    keys: Keys,
    count: int,
    skip: Tensor | None = None,
) -> Tensor:
    """The `count` rows nearest to each query in its group, offsets[g] to offsets[g+1]; -1 where there are fewer.

    queries: (Q, d); groups: (Q,), -1 for none. Gives (Q, count) int64. Groups that are no larger than `count` need no
    search.
    """
    begin = offsets[groups]
    size = torch.where(groups < 0, 0, offsets[groups + 1] - begin)
    places = torch.arange(count, device=queries.device)
    found = torch.where(places < size[:, None], begin[:, None] + places, -1)
    search = size > count
    if skip is not None:
        search &= ~skip
    chosen = search.nonzero().flatten()
    if queries.device.type == "cpu":
        order = chosen[groups[chosen].argsort(stable=True)]
        kinds, asking = groups[order].unique_consecutive(return_counts=True)
        found[order] = _by_group(buffers, queries[order], asking, offsets[kinds], offsets[kinds + 1], keys, count)
    else:
        found[chosen] = _by_query(buffers, queries[chosen], begin[chosen], size[chosen], keys, count)
    return found


def _by_group(
    buffers: Buffers, queries: Tensor, asking: Tensor, starts: Tensor, stops: Tensor, keys: Keys, count: int
) -> Tensor:
    """The same for queries (Q, d), of which the first asking[0] ask the first group, and so on.

    A group is the rows from start to stop, which are read once for all that ask.
    """
    if keys.halves:
        from knnmt.search import halves

        return halves.search(keys, starts, stops, queries, asking, count)[1]
    near = [
        start + Table(buffers, keys, slice(start, stop)).least(some, count)[1]
        for some, start, stop in zip(queries.split(asking.tolist()), starts.tolist(), stops.tolist(), strict=True)
    ]
    return torch.cat(near) if near else queries.new_empty((0, count), dtype=torch.int64)


def _by_query(buffers: Buffers, queries: Tensor, begin: Tensor, size: Tensor, keys: Keys, count: int) -> Tensor:
    """The same for queries (Q, d) that each ask for `size` (Q,) rows from `begin` (Q,) on: many queries at a time."""
    found = begin.new_empty((len(queries), count))
    order = size.argsort(descending=True, stable=True)
    sizes, at = size[order].tolist(), 0
    while at < len(sizes):
        some = order[at : at + max(1, GATHERED // sizes[at])]
        places = torch.arange(sizes[at], device=begin.device)
        missing = places >= size[some, None]
        rows = (begin[some, None] + places).masked_fill_(missing, 0)
        found[some] = begin[some, None] + Table(buffers, keys, rows, missing).least(queries[some, None], count)[1][:, 0]
        at += len(some)
    return found


# ------------------------------------------------------------------------------------------------------- segments


def _likeness(tensors: Tensors, sentence: Tensor, types: Tensor, batch: int) -> Tensor:
    """How much each segment of the store is like each sentence: BM25 over source types, of its best. (B, segments).

    Shares are whole numbers: their sum depends neither on the order of adding nor on the batch. Types that are nearly
    everywhere are left out, and hidden segments are like nothing.
    """
    count, offsets = tensors.store.sizes["segments"], tensors["type_offsets"]
    vocabulary = len(offsets) - 1
    distinct = (sentence * vocabulary + types).unique()
    owner, kinds = distinct // vocabulary, distinct % vocabulary
    begin, size = offsets[kinds], offsets[kinds + 1] - offsets[kinds]
    told = size <= max(COMMON[0], COMMON[1] * count)
    segments, shares = tensors["token_segments"], tensors["token_shares"]
    scores = torch.zeros((batch, count), dtype=torch.int32, device=types.device)
    asked = torch.stack((owner, begin, size))[:, told]
    if scores.device.type == "cpu":  # slices: memory for all numbers at once would cost more than the sums
        for row, start, length in asked.T.tolist():
            some = slice(start, start + length)
            scores[row].index_add_(0, segments[some], shares[some].int())
    else:
        tokens = runs(asked[1], asked[2])
        place = asked[0].repeat_interleave(asked[2]) * count + segments[tokens]
        scores.view(-1).index_add_(0, place, shares[tokens].int())
    if tensors.hidden_segments is not None:
        scores.masked_fill_(tensors.hidden_segments, 0)
    return scores / scores.amax(dim=1, keepdim=True).clamp_min(1)


def _best_segments(likeness: Tensor, count: int) -> Tensor:
    """The segments that are most like each sentence, the best first, -1 where no more are like it. (B, up to count)."""
    room = -likeness.size(1) % 64
    unlike = torch.nn.functional.pad(1.0 - likeness, (0, room), value=2.0)
    unlike, best = least(unlike, min(count, likeness.size(1)))
    return best.masked_fill_(unlike >= 1.0, -1)


def _offered(tensors: Tensors, best: Tensor, sentence: Tensor, types: Tensor, most: int) -> tuple[Tensor, Tensor]:
    """The tokens that each token of a sentence may choose from, and which of them are there. Both (Q, most).

    Those of its type, all if they are so few, else the first of them in the sentence's best segments.
    """
    begin, end = (tensors["type_offsets"][types + step] for step in (0, 1))
    size, places = end - begin, torch.arange(most, device=types.device)
    frequent = (size > most).nonzero().flatten()
    kinds, vocabulary = types[frequent], len(tensors["type_offsets"]) - 1
    groups, group = (sentence[frequent] * vocabulary + kinds).unique(return_inverse=True)
    owner, slot = (best >= 0).nonzero(as_tuple=True)
    starts, segments = tensors["segment_starts"], best[owner, slot]
    lengths = starts[segments + 1] - starts[segments]
    tokens = tensors["segment_tokens"][runs(starts[segments], lengths)]
    keys = torch.searchsorted(tensors["type_offsets"], tokens, right=True) - 1
    keys += owner.repeat_interleave(lengths) * vocabulary
    asked = torch.zeros(len(best) * vocabulary, dtype=torch.bool, device=types.device)
    asked[groups] = True
    there = asked[keys]
    keys, order = keys[there].sort(stable=True)  # the tokens of better segments stay in front
    tokens = tokens[there][order]
    bounds = torch.searchsorted(keys, torch.stack((groups, groups + 1)))
    begin[frequent], size[frequent] = bounds[0][group], (bounds[1] - bounds[0])[group]
    at = begin[:, None] + places
    there = places < size[:, None]
    if len(frequent) and len(tokens):
        at[frequent] = tokens[at[frequent].clamp_max(len(tokens) - 1)].long()
    return at.masked_fill_(~there, 0), there


def _best_tokens(
    tensors: Tensors, tokens: Tensor, missing: Tensor, distances: Tensor, alike: Tensor, count: int
) -> Tensor:
    """The tokens of each row that are nearest, compared with the others, in the segments that are most alike.

    All (..., P), to (..., up to count), -1 where there are fewer.
    """
    if tensors.hidden_segments is not None:
        missing = missing | tensors.hidden_segments[tensors["token_segments"][tokens.clamp_min(0)].long()]
    distances = distances.masked_fill(missing, 0.0)
    typical = distances.sum(dim=-1, keepdim=True) / (~missing).sum(dim=-1, keepdim=True).clamp_min(1)
    rank = distances / typical.clamp_min(1e-6) + ALIKE * (1.0 - alike)
    rank, places = least(rank.masked_fill_(missing, FAR), min(count, rank.size(-1)))
    return tokens.gather(-1, places).masked_fill_(rank == FAR, -1)


def _entries_in(tensors: Tensors, owner: Tensor, segments: Tensor) -> tuple[Tensor, Tensor]:
    """All entries of segments, each with its segment's owner."""
    begin, end = (tensors["target_offsets"][segments + step] for step in (0, 1))
    return _visible(tensors, owner.repeat_interleave(end - begin), runs(begin, end - begin))


# ----------------------------------------------------------------------------------------------------------- rows


def _members(tensors: Tensors, clusters: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """All tokens of clusters (B, C): the sentence, the cluster's slot and the row of each."""
    sentence, slot = (clusters >= 0).nonzero(as_tuple=True)
    begin, end = (tensors["cluster_starts"][clusters[sentence, slot] + step] for step in (0, 1))
    size = end - begin
    return sentence.repeat_interleave(size), slot.repeat_interleave(size), runs(begin, size)


def _entries_of(tensors: Tensors, owner: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The entries that stored tokens link to, each with its token's owner; an entry as often as it is linked."""
    begin, end = (tensors["link_offsets"][tokens + step] for step in (0, 1))
    entries = tensors["link_entries"][runs(begin, end - begin)].long()
    return _visible(tensors, owner.repeat_interleave(end - begin), entries)


def _visible(tensors: Tensors, owner: Tensor, entries: Tensor) -> tuple[Tensor, Tensor]:
    """Those that are not hidden."""
    if tensors.hidden is None:
        return owner, entries
    there = ~tensors.hidden[entries]
    return owner[there], entries[there]


def _rows(sentence: Tensor, numbers: Tensor, batch: int) -> Tensor:
    """The distinct numbers of each sentence as rows, ascending, filled up with -1. Gives (B, N), N > 0."""
    distinct = (sentence << ENTRY + SLOT | numbers).unique()
    sentence, numbers = distinct >> ENTRY + SLOT, distinct & ((1 << ENTRY + SLOT) - 1)
    counts = sentence.bincount(minlength=batch)
    place = runs(torch.zeros_like(counts), counts)
    rows = torch.full((batch, max(1, int(counts.max()))), -1, device=numbers.device)
    rows[sentence, place] = numbers
    return rows
