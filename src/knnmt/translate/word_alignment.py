"""Word alignment between a text and its translation, from the token alignment of the store's aligner."""

import bisect
import itertools
import re
from collections.abc import Sequence
from functools import cached_property

from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import Aligner
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model
from knnmt.model.tokenizer import Tokenizer
from knnmt.store.memories import AnyStore
from knnmt.text.words import Link, diagonal, words

MAX_TEXT, MAX_WORD = 2000, 200  # characters: alignment time is quadratic in both


class WordAligner:
    """Aligns the words of a text and its translation with the aligner of a store.

    It falls back to `diagonal` where there is no aligner (no store, or one built with given links), and for texts too
    long to be a sentence.

    >>> WordAligner(model, store)("Das ist ein Haus.", "That is a house.")
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]
    """

    def __init__(self, model: Model, store: AnyStore | None) -> None:
        self._model, self._store = model, store

    @cached_property
    def _aligner(self) -> Aligner | None:
        try:
            return None if self._store is None else self._store.aligner()
        except StoreError:
            return None

    def __call__(self, source: str, target: str) -> list[Link]:
        """The links, sorted, without duplicates."""
        if self._aligner is None or _too_long(source) or _too_long(target):
            return diagonal(source, target)
        tokenizer, end = self._model.tokenizer, self._model.special.end
        before, sources, after = _source_pieces(tokenizer, source)
        lengths = [[len(piece.strip("▁").removesuffix("</w>")) for piece in tokenizer.pieces(ids)] for ids in sources]
        left = _owners(source, lengths)
        targets = tokenizer.encode_target(target.split())
        right = _owners(target, [[len(piece.strip()) for piece in tokenizer.cut(ids)] for ids in targets])
        pair = [*before, *itertools.chain(*sources), *after], [*itertools.chain(*targets), end]
        links = self._aligner.align(Bitext.from_pairs([pair])).segment(0)
        places = ((i - len(before), j) for i, j in links)
        return sorted({(left[i], right[j]) for i, j in places if 0 <= i < len(left) and j < len(right)})


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
