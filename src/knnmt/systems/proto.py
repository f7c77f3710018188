"""Prototypes: entries of one source type and one target token, gathered by their keys, are looked up as one.

A sentence sees the c prototypes of each source token's type whose source means are nearest. A step ranks them by
log count − d/T, with d the distance of the target mean.

Each part has prototypes of its own. Those of a type and a token that are rare enough to have one prototype in a store
of a single part are merged when a sentence has chosen them, so that parts change neither their sizes nor their number.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.nearest import least
from knnmt.search.rows import FAR, Keys, Rows, gather
from knnmt.store.schema import Array, declare, offsets
from knnmt.systems.chosen import as_rows
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Found, Lookup, Neighbours, Source, System, distribution
from knnmt.systems.view import View

ARRAYS = {
    "proto_offsets": offsets("source_vocabulary", into="prototypes"),
    "proto_tokens": Array("int32", ("prototypes",), below="target_vocabulary"),
    "proto_counts": Array("int32", ("prototypes",)),  # entries that each stands for
    "proto_entries": Array("int32", ("prototypes", "3"), below="entries"),  # those nearest to its mean
    "proto_members": Array("int32", ("members",), below="entries"),  # all of them, one prototype after the other
    "proto_source": Array("int8", ("prototypes", "width")),
    "proto_source_norms": Array("float32", ("prototypes",)),
    "proto_source_steps": Array("float32", ("2", "width")),  # of each number: its middle, and what 1 stands for
    "proto_target": Array("int8", ("prototypes", "width")),
    "proto_target_norms": Array("float32", ("prototypes",)),
    "proto_target_steps": Array("float32", ("2", "width")),
}
declare(ARRAYS)


class Seen(NamedTuple):
    """The prototypes that sentences see, those of the first sentence first.

    owner, entries, tokens: (n,), of each its sentence, the entry nearest to its mean, and its token; masses: (n,)
    float32, how many entries it counts for; means: (n, d) float32, of the target side
    """

    owner: Tensor
    entries: Tensor
    tokens: Tensor
    masses: Tensor
    means: Tensor


class Prototypes:
    """The k prototypes with the best score, of those that each sentence of a batch sees."""

    def __init__(self, view: View, seen: Seen, sentences: int, k: int | None, temperature: float) -> None:
        self.view, self.temperature = view, temperature
        rows = as_rows(seen.owner, torch.arange(len(seen.owner), device=view.device), sentences, len(seen.owner))
        there = rows >= 0
        self.entries, self.tokens = torch.full_like(rows, -1), torch.zeros_like(rows)
        self.log_counts = torch.zeros(rows.shape, device=view.device)
        self.entries[there], self.tokens[there] = seen.entries, seen.tokens
        self.log_counts[there] = seen.masses.log()
        # added to a distance, it ranks as the score does and is never negative: T·(largest log count − its own)
        self.handicaps = temperature * (self.log_counts.amax(dim=1, keepdim=True) - self.log_counts)
        means = seen.means.half()
        norms = means.float().square().sum(dim=-1)
        self.ranked = view.metric != "euclidean"  # whether a handicap can be added to a squared distance
        if self.ranked:
            norms += self.handicaps[there] / view.distance(torch.ones((), device=view.device))
        self.table = view.search.table(Keys([Rows(means, norms)]), rows)
        self.count = min(k or self.table.count, self.table.count)

    def find(self, states: Tensor) -> Found:
        """The best of the sentence's prototypes."""
        squared, places = self.table.nearest(states, self.count if self.ranked else self.table.count)
        distances, columns = self.view.distance(squared), (self.entries, self.tokens, self.log_counts, self.handicaps)
        entries, tokens, log_counts, handicaps = (
            column[:, None].expand(-1, places.size(1), -1).gather(2, places) for column in columns
        )
        if self.ranked:
            distances = (distances - handicaps).clamp_min_(0.0)
        else:
            best = least(distances + handicaps, self.count)[1]
            entries, tokens, distances, log_counts = (
                column.gather(2, best) for column in (entries, tokens, distances, log_counts)
            )
        entries = entries.masked_fill(distances == FAR, -1)
        return Found(entries, tokens, distances, distances.amin(dim=-1), log_counts)

    def neighbours(self, states: Tensor) -> Neighbours:
        """Their distribution."""
        return distribution(self.find(states), self.temperature)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        self.table.keep(sentences)
        self.entries, self.tokens = self.entries[sentences], self.tokens[sentences]
        self.log_counts, self.handicaps = self.log_counts[sentences], self.handicaps[sentences]


def select(view: View, source: Source, settings: RetrievalSettings) -> Lookup:
    """Of each source token's type, the c prototypes whose source means are nearest."""
    assert settings.c is not None
    assert settings.temperature is not None
    sentence, types, states = source.tokens(view)
    chosen = view.search.choose(_means(view, "source"), view.ranges("proto_offsets", types), states, settings.c)
    query, place = (chosen >= 0).nonzero(as_tuple=True)
    owner, numbers = sentence[query], chosen[query, place]
    whole = view.derived("whole prototypes", lambda: whole_prototypes(view))
    if whole is not None:
        owner, numbers = owner[whole[numbers]], numbers[whole[numbers]]
    rows = as_rows(owner, numbers, len(source.ids), view.count("prototypes"))
    owner, place = (rows >= 0).nonzero(as_tuple=True)
    seen = merged(view, owner, rows[owner, place])
    return Prototypes(view, seen, len(source.ids), settings.k, settings.temperature)


def merged(view: View, owner: Tensor, numbers: Tensor) -> Seen:
    """Distinct prototypes (n,) that sentences chose, by owner and number; those of several parts are merged.

    Of those that are the only one of their type and token in their part, the weighted mean is taken, if together they
    stand for no more entries than the largest of that kind: one part of all entries would have one, too.
    """
    if len(view.parts) > 1:
        lone, most = view.kept("lone prototypes", lambda: lone_prototypes(view))
        sizes, starts = view.parts[0].sizes, view.blocks("proto_offsets")
        types = gather(
            numbers, view.starts("prototypes"), lambda part, rows: torch.bucketize(rows, starts[part], right=True) - 1
        )
        group = (owner * sizes["source_vocabulary"] + types) * sizes["target_vocabulary"] + view["proto_tokens"][
            numbers
        ]
        group, order = (2 * group + ~lone[numbers]).sort(stable=True)
        owner, numbers = owner[order], numbers[order]
    entries, tokens = view["proto_entries"][numbers][..., 0], view["proto_tokens"][numbers].long()
    masses, means = view["proto_counts"][numbers].float(), _means(view, "target")[numbers]
    if len(view.parts) > 1:
        first = torch.ones_like(group, dtype=torch.bool)
        first[1:] = group[1:] != group[:-1]
        first |= (group % 2 == 1) | (_sums(first, masses)[1] > most)
        place, whole = _sums(first, masses)
        means = torch.zeros_like(means).index_add_(0, place, means * (masses / whole)[:, None])[: int(first.sum())]
        owner, entries, tokens, masses = owner[first], entries[first], tokens[first], whole[first]
    return Seen(owner, entries, tokens, masses, means)


def _sums(first: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """The number of each value's run (n,), where `first` (n,) tells the first of each; and the sum of its run (n,)."""
    place = first.cumsum(0) - 1
    return place, torch.zeros_like(values).index_add_(0, place, values)[place]


def lone_prototypes(view: View) -> tuple[Tensor, float]:
    """Which prototypes are the only one of their type and token in their part, (P,) bool; and the largest such."""
    every = []
    for tokens, starts in zip(view.blocks("proto_tokens"), view.blocks("proto_offsets"), strict=True):
        begins = torch.ones(len(tokens) + 1, dtype=torch.bool, device=tokens.device)
        begins[1:-1] = tokens[1:] != tokens[:-1]
        begins[starts] = True
        every.append(begins[1:] & begins[:-1])
    lone = torch.cat(every)
    return lone, float(view["proto_counts"].whole()[lone].max()) if bool(lone.any()) else 0.0


def whole_prototypes(view: View) -> Tensor | None:
    """Which prototypes have no hidden entry, (P,) bool, or None for all: what is left of a mean cannot be told."""
    if view.hidden is None:
        return None
    counts, members = view["proto_counts"].whole().long(), view["proto_members"].whole().long()
    owner = torch.arange(len(counts), device=view.device).repeat_interleave(counts)
    whole = torch.ones(len(counts), dtype=torch.bool, device=view.device)
    return whole.index_fill_(0, owner[view.hidden[members]], False)


def _means(view: View, side: str) -> Keys[Rows]:
    """The source or target means of the prototypes."""
    names = [f"proto_{side}", f"proto_{side}_norms", f"proto_{side}_steps"]

    def make() -> Keys[Rows]:
        columns = (view.blocks(name) for name in names)
        return Keys([Rows(values, norms, steps=steps) for values, norms, steps in zip(*columns, strict=True)])

    return view.kept(f"prototypes' {side} means", make)


SYSTEM = System(
    name="proto",
    summary="compares with prototypes that stand for several entries",
    arrays=tuple(ARRAYS),
    select=select,
    takes_c=True,
    c_grid=(16, 64, 256, 1024),
)
