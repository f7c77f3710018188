"""Prototypes: entries of one source type and one target token, clustered by their keys, are looked up as one.

A sentence sees the c prototypes of each source token's type whose source means are nearest. A step ranks them by
log count − d/T, with d the distance of the target mean.
"""

import torch
from torch import Tensor

from knnmt.search.entries import as_rows
from knnmt.search.nearest import Table, least
from knnmt.search.rows import FAR, Keys, Rows
from knnmt.store.schema import Array, declare, offsets
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Found, Source, System
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


class Prototypes(Candidates):
    """The k prototypes with the best score, of those that each sentence sees (B, N), -1 for none."""

    def __init__(self, view: View, numbers: Tensor, k: int | None, temperature: float) -> None:
        self.view, self.k, self.temperature = view, k, temperature
        there = numbers.clamp_min(0)
        self.table = Table(view.search.buffers, _means(view, "target"), there, numbers < 0)
        self.entries = view["proto_entries"][there][..., 0].masked_fill(numbers < 0, -1)
        self.tokens = view["proto_tokens"][there].long()
        self.log_counts = view["proto_counts"][there].float().log() + view.log_weights(self.entries)
        # added to a distance, it ranks as the score does and is never negative: T·(largest log count − its own)
        self.handicaps = temperature * (self.log_counts.amax(dim=1, keepdim=True) - self.log_counts)

    def offered(self) -> Tensor:
        """The tokens of the sentence's prototypes."""
        return self.tokens.masked_fill(self.entries < 0, -1)

    def find(self, states: Tensor) -> Found:
        """The best of the sentence's prototypes."""
        distances = self.view.distance(self.table.distances(states).clamp_min_(0.0))
        distances[:, :, : self.table.count] += self.handicaps[:, None]
        ranked, places = least(distances, min(self.k or self.table.count, self.table.count))
        columns = self.entries, self.tokens, self.log_counts, self.handicaps
        entries, tokens, log_counts, handicaps = (
            column[:, None].expand(-1, places.size(1), -1).gather(2, places) for column in columns
        )
        distances = ranked - handicaps
        entries = entries.masked_fill(distances == FAR, -1)
        return Found(entries, tokens, distances, distances.amin(dim=-1), log_counts)

    def keep(self, sentences: Tensor) -> None:
        """Drop all sentences but these."""
        self.table.keep(sentences)
        self.entries, self.tokens = self.entries[sentences], self.tokens[sentences]
        self.log_counts, self.handicaps = self.log_counts[sentences], self.handicaps[sentences]


def select(view: View, source: Source, settings: RetrievalSettings) -> Candidates:
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
    return Prototypes(view, rows, settings.k, settings.temperature)


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
