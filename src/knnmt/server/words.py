"""Words of a text, and which of them translate which: what moving tags from a text to its translation needs."""

import bisect
import itertools
import re
from collections.abc import Sequence
from functools import cached_property

from knnmt.align import Aligner, Bitext
from knnmt.errors import StoreError
from knnmt.model.tokenizer import Tokenizer
from knnmt.translate import Translator

# characters of a text, and of one word: aligning, and counting the letters of pieces, takes the square of these
LONGEST, LONGEST_WORD = 2000, 200

Link = tuple[int, int]
"""Positions of a source word and of a target word, from 0."""

# scripts that are written without spaces: each character counts as a word
_DENSE = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
WORD = re.compile(rf"[{_DENSE}]|[^\W{_DENSE}]+(?:['’\-.][^\W{_DENSE}]+)*|[^\w\s]")


def words(text: str) -> list[tuple[int, int]]:
    """Where the words of a text begin and end; a mark of punctuation is a word."""
    return [found.span() for found in WORD.finditer(text)]


def diagonal(source: str, target: str) -> list[Link]:
    """Links by place alone: each word, on the side that has more of them, with the other's at the same share."""
    n, m = len(words(source)), len(words(target))
    longer = max(n, m)
    return [(place * n // longer, place * m // longer) for place in range(longer)] if n and m else []


class WordAligner:
    """Links the words of a text and its translation by the alignment model of a translator's store.

    A translator without a store, and a store whose links were made elsewhere, have no such model: then by place. So are
    texts that are longer than a sentence can be.

    >>> WordAligner(translator)("Das ist ein Haus.", "That is a house.")
    [(0, 0), (1, 1), (2, 2), (3, 3), (4, 4)]
    """

    def __init__(self, translator: Translator) -> None:
        self._model = translator.model
        self._store = translator.store

    @cached_property
    def _aligner(self) -> Aligner | None:
        try:
            return None if self._store is None else self._store.aligner()
        except StoreError:
            return None

    def __call__(self, source: str, target: str) -> list[Link]:
        """The links, sorted, each once."""
        if self._aligner is None or _endless(source) or _endless(target):
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


def _endless(text: str) -> bool:
    return len(text) > LONGEST or max(map(len, text.split()), default=0) > LONGEST_WORD


def _source_pieces(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[list[int]], list[int]]:
    """What stands before a source text, the ids of each chunk between its spaces, and what stands after it."""
    bare, *chunks = tokenizer.encode_source(["", *text.split()])
    first = chunks[0] if chunks else bare
    prefix = next((place for place, number in enumerate(bare) if number != first[place]), len(bare))
    rest = len(bare) - prefix
    return bare[:prefix], [ids[prefix : len(ids) - rest] for ids in chunks], bare[prefix:]


def _owners(text: str, chunks: Sequence[Sequence[int]]) -> list[int]:
    """The word that each piece belongs to; chunks: the lengths of the pieces of what stands between spaces.

    Pieces need not have the letters of the text (one may be unknown, or rewritten): their lengths count in proportion.
    """
    begins = [begin for begin, _ in words(text)]
    owners = []
    for lengths, found in zip(chunks, re.finditer(r"\S+", text), strict=True):
        scale = len(found[0]) / max(1, sum(lengths))
        ends = itertools.accumulate(lengths)
        middles = (found.start() + scale * (end - length / 2) for end, length in zip(ends, lengths, strict=True))
        owners += [max(0, bisect.bisect_right(begins, middle) - 1) for middle in middles]
    return owners
