"""Which segments share the most with each sentence, by their postings: what each token adds to its segment's score.

A sentence walks so many postings and no more, and only segments that it comes across are kept: time and memory do not
grow with the store.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from knnmt.search.nearest import runs


class Postings(NamedTuple):
    """The postings of each part: the segments of tokens (tokens,) int32, numbered in the part, and what each token adds
    to its segment's score (tokens,) int16.

    first: the number of each part's first segment, and that behind the last; hidden: (segments,) bool, segments that
    are not found, or None for none
    """

    segments: Sequence[Tensor]
    shares: Sequence[Tensor]
    first: Sequence[int]
    hidden: Tensor | None


class Walk(NamedTuple):
    """Runs of postings that sentences walk: owner (n,) is the sentence, ascending; starts and sizes: (n, parts)."""

    owner: Tensor
    starts: Tensor
    sizes: Tensor


class Tally:
    """The segments that the sentences of a batch come across, and their scores.

    best: (B, most), those with the highest scores, the lower number first among equals; padded with -1
    """

    def __init__(self, postings: Postings, walk: Walk, batch: int, most: int) -> None:
        self.count = max(1, postings.first[-1])
        keys, values = [], []
        for part, (segments, shares, first) in enumerate(zip(*postings[:2], postings.first[:-1], strict=True)):
            at = runs(walk.starts[:, part], walk.sizes[:, part])
            found = segments[at].long() + first
            keys.append(walk.owner.repeat_interleave(walk.sizes[:, part]) * self.count + found)
            value = shares[at].int()
            values.append(value if postings.hidden is None else value.masked_fill_(postings.hidden[found], 0))
        self.keys, place = torch.cat(keys).unique(return_inverse=True)
        self.scores = torch.zeros(len(self.keys), dtype=torch.int32, device=self.keys.device)
        self.scores.index_add_(0, place, torch.cat(values))
        self.best, self.highest = self._ranked(batch, most)

    def _ranked(self, batch: int, most: int) -> tuple[Tensor, Tensor]:
        """The best segments of each sentence (B, most), and the score of the very best, at least 1. (B,)."""
        device = self.keys.device
        owner = self.keys // self.count
        # the scores of a sentence fall; among equals the sort leaves the lower number in front
        order = ((owner << 32) - self.scores).sort(stable=True).indices
        counts = owner.bincount(minlength=batch)
        place = runs(torch.zeros_like(counts), counts)
        scores, segments = self.scores[order], self.keys[order] % self.count
        highest = torch.ones(batch, dtype=torch.int32, device=device)
        highest.scatter_reduce_(0, owner, scores, "amax")
        best = torch.full((batch, most), -1, device=device)
        kept = (place < most) & (scores > 0)
        best[owner[kept], place[kept]] = segments[kept]
        return best, highest

    def similarity(self, sentence: Tensor, segments: Tensor) -> Tensor:
        """The scores of segments (n, m) for sentences (n,), as a share of the best segment's. (n, m) float32."""
        if not len(self.keys):
            return torch.zeros(segments.shape, device=segments.device)
        wanted = sentence[:, None] * self.count + segments
        place = torch.searchsorted(self.keys, wanted).clamp_max_(len(self.keys) - 1)
        scores = torch.where(self.keys[place] == wanted, self.scores[place], 0)
        return scores / self.highest[sentence][:, None]
