"""Word alignment between a text and its translation, by the model's own cross-attention.

The translation is shown to the model once more, and each position says where it looks in the source. In the lower half
of the decoder a position looks at what translates the token it has just read; in the upper half, at what translates the
token it is about to predict. Words are linked that look at each other most; then, of the words left, those that do.
"""

import bisect
import itertools
import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.model.checkpoint import Model
from knnmt.model.represent import padded
from knnmt.model.tokenizer import Tokenizer
from knnmt.text.words import Link, Pair, diagonal, words

TOGETHER = 2048  # tokens of both sides, padding included, that are shown to the model at once
MAX_TEXT, MAX_WORD = 2000, 200  # characters: of longer ones, tokenizers take their time
ROUNDS = 2  # in which words find each other
LEAST = 0.15  # of a word's attention, for a link


class WordAligner:
    """Aligns the words of a text and its translation; texts too long for the model fall back to `diagonal`.

    >>> WordAligner(model)("Gestern kam er an.", "He arrived yesterday.")
    [(0, 2), (1, 1), (2, 0), (4, 3)]
    """

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, source: str, target: str) -> list[Link]:
        """The links, sorted; each word has one at most."""
        return self.align([(source, target)])[source, target]

    def align(self, pairs: Iterable[Pair]) -> dict[Pair, list[Link]]:
        """The links of several texts and their translations."""
        found: dict[Pair, list[Link]] = {}
        shown: list[tuple[Pair, Tokens]] = []
        special, room = self._model.special, self._model.transformer.architecture.max_positions
        for pair in dict.fromkeys(pairs):
            tokens = None if any(map(_too_long, pair)) else tokens_of(self._model.tokenizer, *pair)
            if tokens is None or max(len(tokens.source), len(special.prefix) + len(tokens.target) + 1) > room:
                found[pair] = diagonal(*pair)
            elif not tokens.left or not tokens.right:
                found[pair] = []
            else:
                shown.append((pair, tokens))
        for some in _batches(shown):
            every = attended(self._model, [tokens.source for _, tokens in some], [tokens.target for _, tokens in some])
            for (pair, tokens), weights in zip(some, every, strict=True):
                found[pair] = _linked(*pair, tokens, weights)
        return found


class Tokens(NamedTuple):
    """A text and its translation as tokens, and the words that these belong to."""

    source: list[int]  # with tags and `</s>`
    target: list[int]  # the text alone
    first: int  # source token of the text
    left: list[int]  # the word of each source token, from `first` on
    right: list[int]  # the word of each target token


def tokens_of(tokenizer: Tokenizer, source: str, target: str) -> Tokens:
    """The tokens of both texts, encoded between spaces."""
    before, sources, after = _source_pieces(tokenizer, source)
    lengths = [[len(piece.strip("▁").removesuffix("</w>")) for piece in tokenizer.pieces(ids)] for ids in sources]
    targets = tokenizer.encode_target(target.split())
    return Tokens(
        [*before, *itertools.chain(*sources), *after],
        list(itertools.chain(*targets)),
        len(before),
        _owners(source, lengths),
        _owners(target, [[len(piece.strip()) for piece in tokenizer.cut(ids)] for ids in targets]),
    )


@torch.inference_mode()
def attended(
    model: Model, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[NDArray[np.float32]]:
    """How much each target token attends to each source token: (T, S) of each pair, the sum over layers.

    sources: as `encode_source` gives them; targets: as `encode_target` does, one token at least
    """
    special, network = model.special, model.transformer
    encoded = network.encode(*padded(sources, special.pad, model.device))
    before, _ = padded([[special.start, *special.prefix, *target] for target in targets], special.pad, model.device)
    layers = network.attention(before, encoded)[:, :, len(special.prefix) :]  # (layers, B, T + 1, S)
    count = layers.size(0)
    read, predicted = layers[: (count + 1) // 2, :, 1:], layers[count // 2 :, :, :-1]
    every: NDArray[np.float32] = (read.sum(dim=0) + predicted.sum(dim=0)).cpu().numpy()
    sizes = zip(map(len, targets), map(len, sources), strict=True)
    return [each[:rows, :columns] for each, (rows, columns) in zip(every, sizes, strict=True)]


def _batches(shown: list[tuple[Pair, Tokens]]) -> Iterable[list[tuple[Pair, Tokens]]]:
    """Pairs of similar length together."""
    left = sorted(shown, key=lambda one: len(one[1].source) + len(one[1].target))
    while left:
        size = max(1, TOGETHER // (len(left[-1][1].source) + len(left[-1][1].target)))
        yield left[-size:]
        del left[-size:]


def _linked(source: str, target: str, tokens: Tokens, weights: NDArray[np.float32]) -> list[Link]:
    """The links between words, given how much tokens attend to each other (T, S)."""
    weights = weights[:, tokens.first : tokens.first + len(tokens.left)]
    left, right = np.array(tokens.left), np.array(tokens.right)
    by_word = np.zeros((right.max() + 1, left.max() + 1))
    np.add.at(by_word, (right[:, None], left[None]), weights)
    by_word /= np.maximum(1, np.bincount(right))[:, None]  # a long word must not attract more than a short one
    ours, theirs = (_marks(text)[: by_word.shape[axis]] for text, axis in ((target, 0), (source, 1)))
    by_word[ours[:, None] != theirs] = 0  # a quotation mark before a word looks at what the word translates
    return _mutual(by_word)


def _mutual(weights: NDArray[np.float64]) -> list[Link]:
    """Links between words that attend to each other most, in rounds over the words left. weights: (target, source)."""
    links: list[Link] = []
    left = weights.copy()
    for _ in range(ROUNDS):
        ours, theirs = left.argmax(axis=1), left.argmax(axis=0)
        for j, i in enumerate(ours.tolist()):
            if theirs[i] == j and left[j, i] > LEAST * weights[j].sum():
                links.append((i, j))
        for i, j in links:
            left[j], left[:, i] = 0, 0
    return sorted(links)


def _marks(text: str) -> NDArray[np.bool_]:
    """Which words of a text are punctuation."""
    return np.array([not any(map(str.isalnum, text[begin:end])) for begin, end in words(text)])


def _too_long(text: str) -> bool:
    return len(text) > MAX_TEXT or max(map(len, text.split()), default=0) > MAX_WORD


def _source_pieces(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[list[int]], list[int]]:
    """The ids before a source text, of each whitespace-separated chunk, and after the text."""
    bare, *chunks = tokenizer.encode_source(["", *text.split()])
    first = chunks[0] if chunks else bare
    prefix = next((place for place, number in enumerate(bare) if number != first[place]), len(bare))
    rest = len(bare) - prefix
    return bare[:prefix], [ids[prefix : len(ids) - rest] for ids in chunks], bare[prefix:]


def _owners(text: str, chunks: Sequence[Sequence[int]]) -> list[int]:
    """The word that each piece belongs to; chunks: piece lengths of each whitespace-separated chunk.

    Pieces need not spell the text (one may be unknown, or normalised), so lengths are scaled to the chunk's.
    """
    begins = [begin for begin, _ in words(text)]
    owners = []
    for lengths, found in zip(chunks, re.finditer(r"\S+", text), strict=True):
        scale = len(found[0]) / max(1, sum(lengths))
        ends = itertools.accumulate(lengths)
        middles = (found.start() + scale * (end - length / 2) for end, length in zip(ends, lengths, strict=True))
        owners += [max(0, bisect.bisect_right(begins, middle) - 1) for middle in middles]
    return owners
