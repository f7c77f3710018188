"""Shortlists: the target tokens that a sentence may give, so that a step computes the logits of these alone.

A sentence's own list has frequent tokens, which all lists share, translations of its source tokens by a lexicon, and
all that retrieval may offer it. A batch computes the logits of the union; what is not in a sentence's list gets −inf
before anything is normalised, so that a translation does not depend on the batch. In the search, a token's number is
its place in the union.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor, nn

from knnmt.csr import runs
from knnmt.model.lexicon import Lexicon
from knnmt.model.linear import Linear, Precision
from knnmt.model.tokenizer import SpecialTokens


class Retrieval(Protocol):
    """What retrieval may bring into translations."""

    def offered(self) -> Tensor | None:
        """The target tokens that each sentence may find, -1 for none. (B, M), or None where that may be any."""
        ...

    def narrow(self, places: Tensor) -> None:
        """From now on, logits are those of a shortlist with all tokens offered. places: (V,) int64, as it has them."""
        ...


class Shortlist:
    """The union of the lists of a batch: N tokens, of which the first N - M are in all lists.

    tokens: (N,) int64, the token at each place; places: (V,) int64, the place of each token, that of padding for those
    without one; mask: (B, 1, M), 0 for a sentence's own tokens, else −inf
    """

    def __init__(self, tokens: Tensor, places: Tensor, shared: Linear, others: Linear, mask: Tensor) -> None:
        self.tokens, self.places, self.shared, self.others, self.mask = tokens, places, shared, others, mask

    def special(self, special: SpecialTokens) -> SpecialTokens:
        """The special tokens, by place."""
        start, end, pad = self.places[[special.start, special.end, special.pad]].tolist()
        prefix, banned = (tuple(self.places[list(tokens)].tolist()) for tokens in (special.prefix, special.banned))
        return replace(special, start=start, end=end, pad=pad, prefix=prefix, banned=banned)

    def logits(self, output: Tensor) -> Tensor:
        """Logits of the union in float32, −inf outside a sentence's own list. (B, K, d) to (B, K, N)."""
        shared = self.shared(output).float()
        if not self.mask.size(2):
            return shared
        return torch.cat((shared, self.others(output).float().add_(self.mask)), dim=2)

    def keep(self, rows: Tensor) -> None:
        """Keep only these sentences. rows: (N,) int64."""
        self.mask = self.mask[rows]


class Shortlists:
    """Makes the shortlists of batches. weight: (V, d), bias: (V,) or None, of the output projection, not packed."""

    def __init__(
        self, lexicon: Lexicon, special: SpecialTokens, weight: Tensor, bias: Tensor | None, precision: Precision
    ) -> None:
        self.lexicon, self.weight, self.bias, self.precision = lexicon, weight, bias, precision
        tokens = (special.start, special.end, special.pad, *special.prefix, *special.banned)
        self.shared = np.union1d(lexicon.frequent, tokens)
        self.pad = special.pad
        self.projection = self._projection(torch.from_numpy(self.shared))

    def split(self, pieces: Sequence[Sequence[int]]) -> list[list[int]]:
        """Numbers of the pieces, those first that a shortlist is safe for. Each group has a piece."""
        safe = [self.lexicon.trusts(piece) for piece in pieces]
        groups = ([number for number, one in enumerate(safe) if one == wanted] for wanted in (True, False))
        return [group for group in groups if group]

    def of(self, ids: Tensor, mask: Tensor, retrieval: Retrieval | None = None) -> Shortlist | None:
        """The shortlist of sentences, to which their retrieval is narrowed; None where only the vocabulary is safe.

        That is where a sentence has a token that the lexicon does not trust, and where retrieval may find any token.
        ids, mask: (B, S), of the source
        """
        offered = None if retrieval is None else retrieval.offered()
        if retrieval is not None and offered is None:
            return None
        row, position = mask.numpy().nonzero()
        types = ids.numpy()[row, position]
        if not self.lexicon.trusted[types].all():
            return None
        offsets, vocabulary = self.lexicon.offsets, len(self.weight)
        own = np.zeros((len(ids), vocabulary), np.bool_)
        own[np.repeat(row, offsets[types + 1] - offsets[types]), self.lexicon.targets[runs(offsets, types)]] = True
        copied = types < vocabulary  # most vocabularies are shared: names and numbers stay as they are
        own[row[copied], types[copied]] = True
        if offered is not None:
            tokens = offered.numpy()
            there = (tokens >= 0).nonzero()
            own[there[0], tokens[there]] = True
        own[:, self.shared] = False
        others = np.flatnonzero(own.any(axis=0))
        union = np.concatenate((self.shared, others))
        places = np.full(vocabulary, np.searchsorted(self.shared, self.pad))
        places[union] = np.arange(union.size)
        outside = np.where(own[:, None, others], np.float32(0.0), np.float32(-np.inf))
        numbers, placed, rest, masked = (torch.from_numpy(each) for each in (union, places, others, outside))
        if retrieval is not None:
            retrieval.narrow(placed)
        return Shortlist(numbers, placed, self.projection, self._projection(rest), masked)

    def _projection(self, tokens: Tensor) -> Linear:
        """The output projection of these tokens."""
        with torch.device("meta"):
            made = Linear(self.weight.size(1), len(tokens))
        made.weight = nn.Parameter(self.weight.index_select(0, tokens), requires_grad=False)
        made.bias = None if self.bias is None else nn.Parameter(self.bias[tokens], requires_grad=False)
        if len(tokens):
            made.pack(self.precision)
        return made
