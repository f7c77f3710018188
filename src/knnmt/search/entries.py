"""The entries that sentences see, by the links of stored tokens and by whole segments."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.matches import ALIKE, BITS, Matches
from knnmt.search.nearest import runs

MOST = 1 << 31  # entries of a part, which are numbered by int32


class PartLinks(NamedTuple):
    """The links of a part: where those of each token begin (tokens + 1,), their entries (links,) int32, and where the
    entries of each segment begin (segments + 1,). first_*: their numbers in the store."""

    link_offsets: Tensor
    link_entries: Tensor
    target_offsets: Tensor
    first_token: int
    first_segment: int
    first_entry: int


def gather_entries(
    parts: Sequence[PartLinks], hidden: Tensor | None, sentence: Tensor, matches: Matches
) -> tuple[Tensor, Tensor]:
    """The visible entries that tokens link to, and all of some segments: of each sentence, distinct and ascending,
    padded with -1; and how similar the segment of each is. Both (B, N), N > 0.

    sentence: (Q,), rising, of the tokens of matches; hidden: (E,) bool, or None
    """
    tokens, segments = matches.tokens, matches.segments
    batch = torch.arange(len(segments), device=segments.device)
    owners, entries, alikes = [], [], []
    for part in parts:
        owner, at, alike = _runs_of(sentence, tokens - part.first_token, matches.tokens_alike, part.link_offsets)
        owners.append(owner)
        alikes.append(alike)
        entries.append(part.link_entries[at].long() + part.first_entry)
        owner, at, alike = _runs_of(batch, segments - part.first_segment, matches.segments_alike, part.target_offsets)
        owners.append(owner)
        alikes.append(alike)
        entries.append(at + part.first_entry)
    owner, found = torch.cat(owners), torch.cat(entries) << BITS | torch.cat(alikes)
    if hidden is not None:
        there = ~hidden[found >> BITS]
        owner, found = owner[there], found[there]
    rows = as_rows(owner, found, len(segments), (parts[-1].first_entry + MOST) << BITS)
    return rows >> BITS, rows.masked_fill(rows < 0, 0) & ALIKE


def _runs_of(owner: Tensor, numbers: Tensor, alike: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The runs of numbers (n, m), by offsets: what they consist of, each with the number's owner (n,) and similarity
    (n, m). Numbers that have none are of other parts, or no numbers."""
    row, place = ((numbers >= 0) & (numbers < len(offsets) - 1)).nonzero(as_tuple=True)
    own = numbers[row, place]
    begin = offsets[own]
    size = offsets[own + 1] - begin
    return owner[row].repeat_interleave(size), runs(begin, size), alike[row, place].repeat_interleave(size)


def as_rows(group: Tensor, numbers: Tensor, groups: int, below: int) -> Tensor:
    """The distinct numbers of each group as rows, ascending, padded with -1. (groups, N), N > 0.

    group, numbers: (n,); below: what all numbers are less than
    """
    below = max(below, 1)
    distinct = (group * below + numbers).unique()
    group, numbers = distinct // below, distinct % below
    counts = group.bincount(minlength=groups)
    place = runs(torch.zeros_like(counts), counts)
    rows = torch.full((groups, max(1, int(counts.max()))), -1, device=numbers.device)
    rows[group, place] = numbers
    return rows
