"""Which word of a translation renders a term of its source: the one that the model would not say without the term.

The translation is shown to the model twice, with the whole source and with the term taken out of it. The word that
becomes least probable renders the term. Where the term stands several times in the source, several words do, and the
first of them is found. This needs no aligner, and follows the translation as it is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from knnmt.model.checkpoint import Model
from knnmt.model.represent import padded

BATCH = 32
WEAK = 1.0  # nats: a word that loses less does not depend on the term
ALIKE = 1 / 3  # of what the word that loses most does: the other renditions of a term lose no less


class Asked(NamedTuple):
    """A term in a source text, all places of it, and a translation of the text."""

    source: str
    places: tuple[tuple[int, int], ...]
    tokens: tuple[int, ...]
    taken: tuple[tuple[int, int], ...] = ()  # places in the text of the tokens that render other terms
    lacking: int = 1  # how many words render the term: as many as its places, less those that are right already


class Rendition(NamedTuple):
    """The tokens that render a term, from `start` to `end`; `before` is where the word before them begins.

    `longer` is another end, where the word behind them may belong to them, as in «hard disk»; else it is `end`.
    """

    before: int
    start: int
    end: int
    longer: int


@dataclass(frozen=True)
class Renditions:
    """Finds renditions with a model."""

    model: Model

    def find(self, asked: Sequence[Asked]) -> list[Rendition | None]:
        """The first rendition of each term; None where no word depends on it."""
        whole = list(dict.fromkeys((each.source, each.tokens) for each in asked))
        with_term = dict(zip(whole, log_probabilities(self.model, whole), strict=True))
        without = log_probabilities(self.model, [(_without(each), each.tokens) for each in asked])
        found = []
        for each, less in zip(asked, without, strict=True):
            losses = [a - b for a, b in zip(with_term[each.source, each.tokens], less, strict=True)]
            found.append(self._found(each, losses))
        return found

    def at(self, tokens: Sequence[int], place: int) -> Rendition | None:
        """The word at a place in the text of a translation."""
        words = self._words(tokens)
        return next((_rendition(words, number, number) for number, word in enumerate(words) if place < word.stop), None)

    def _words(self, tokens: Sequence[int]) -> list["_Word"]:
        """The words of a translation: each begins behind a space."""
        found: list[_Word] = []
        at = 0
        for place, text in enumerate(self.model.tokenizer.cut(tokens)):
            at += len(text)
            if text[:1].isspace() or (text and not found):
                found.append(_Word(place, -1, place + 1, at))
            if text and found:
                found[-1] = found[-1]._replace(stop=at)
                if any(map(str.isalnum, text)):
                    start = place if found[-1].start < 0 else found[-1].start
                    found[-1] = found[-1]._replace(start=start, end=place + 1)
        return [word for word in found if word.start >= 0]

    def _found(self, asked: Asked, losses: Sequence[float]) -> Rendition | None:
        words = self._words(asked.tokens)
        by_word = [
            sum(losses[word.begin : word.end]) if not any(at < word.stop <= stop for at, stop in asked.taken) else 0.0
            for word in words
        ]
        most, *others = sorted(by_word, reverse=True)[: asked.lacking] or [0.0]
        if most < WEAK:
            return None
        enough = max(WEAK, min([most, *(loss for loss in others if loss >= ALIKE * most)]))
        first = next(number for number, loss in enumerate(by_word) if loss >= enough)
        return _rendition(words, first, first + any(loss >= WEAK for loss in by_word[first + 1 : first + 2]))


class _Word(NamedTuple):
    """A word of a translation, by tokens."""

    begin: int
    start: int  # the first token with letters
    end: int  # behind the last token with letters
    stop: int  # where it ends in the text


def _rendition(words: Sequence[_Word], first: int, last: int) -> Rendition:
    return Rendition(words[max(0, first - 1)].begin, words[first].start, words[first].end, words[last].end)


def _without(asked: Asked) -> str:
    text = asked.source
    for start, end in reversed(asked.places):
        text = text[:start] + " " + text[end:]
    return " ".join(text.split())


@torch.inference_mode()
def log_probabilities(model: Model, pairs: Sequence[tuple[str, tuple[int, ...]]]) -> list[list[float]]:
    """Log-probabilities of the tokens of translations, given sources; in batches of similar length."""
    special, room = model.special, model.transformer.architecture.max_positions
    order = sorted(range(len(pairs)), key=lambda row: (len(pairs[row][1]), pairs[row][0]))
    found: list[list[float]] = [[]] * len(pairs)
    for begin in range(0, len(pairs), BATCH):
        rows = order[begin : begin + BATCH]
        sources = list(dict.fromkeys(pairs[row][0] for row in rows))
        targets = [list(pairs[row][1]) for row in rows]
        ids, mask = padded(model.tokenizer.encode_source(sources), special.pad, model.device, room)
        places = torch.tensor([sources.index(pairs[row][0]) for row in rows], device=model.device)
        encoded = model.transformer.encode(ids, mask).keep(places)
        before, real = padded([[special.start, *tokens[:-1]] for tokens in targets], special.pad, model.device)
        logits = model.transformer.logits(model.transformer.force(before, encoded).output[real]).float()
        chosen = torch.tensor([token for tokens in targets for token in tokens], device=model.device)
        log_p = logits.gather(1, chosen[:, None])[:, 0] - logits.logsumexp(dim=1)
        for row, part in zip(rows, log_p.cpu().split([len(tokens) for tokens in targets]), strict=True):
            found[row] = part.tolist()
    return found
