"""Texts that are too long for the model, in pieces that can be translated at different times."""

from collections.abc import Callable, Sequence

from knnmt.corpus.split import split
from knnmt.text.unit import cut_text


def pieces_of(text: str, sizes: Callable[[Sequence[str]], list[int]], limit: int) -> list[str]:
    """A text in pieces of at most `limit` tokens, as `sizes` counts them.

    The pieces are lines and sentences with the white space behind them, as many together as fit; a sentence that does
    not fit is split into clauses or words.
    """
    sentences = cut_text(text)
    pieces: list[str] = []
    room = 0  # left in the last piece
    for sentence, size in zip(sentences, sizes(sentences), strict=True):
        if size > limit:
            space = sentence[len(sentence.rstrip()) :]
            parts = split(" ".join(sentence.split()), sizes, limit)
            pieces += [part + " " for part in parts[:-1]] + [parts[-1] + space]
            room = 0
        elif size <= room:
            pieces[-1] += sentence
            room -= size
        else:
            pieces.append(sentence)
            room = limit - size
    return pieces
