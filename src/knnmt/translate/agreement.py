"""The form of a German term, and of the article and adjectives before it, that fit each other and the sentence.

A search from left to right chooses the article before it knows the noun, and prefers that of the noun that the model
would say. So all that agree are put into the translation, and each is scored by what follows the article: the noun is
improbable behind an article of another gender, and so is the rest behind another number.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from knnmt.model.checkpoint import Model
from knnmt.text.agreement import agreeing
from knnmt.translate.renditions import Rendition, log_probabilities

ARTICLES = 0.5  # the weight of their own log-probabilities: they tell the case, and expect another noun
MOST = 40  # phrases of a term


class Phrase(NamedTuple):
    """A term that takes the place of a word in a translation, from the token `free` on at the earliest."""

    source: str
    tokens: tuple[int, ...]
    where: Rendition
    free: int
    forms: Sequence[str]  # as they are written


class Agreed(NamedTuple):
    """The tokens of an article, adjectives and a term, and the token of the translation that they begin at."""

    start: int
    ids: tuple[int, ...]


@dataclass(frozen=True)
class Agreement:
    """Chooses with a model."""

    model: Model

    def choose(self, phrases: Sequence[Phrase]) -> list[Agreed | None]:
        """The most probable of each; None where no article stands before the word."""
        rows: list[tuple[int, Agreed, int]] = []
        for number, phrase in enumerate(phrases):
            rows += ((number, agreed, behind) for agreed, behind in list(self._candidates(phrase))[:MOST])
        pairs = []
        for number, (start, ids), _ in rows:
            source, tokens, where, _, _ = phrases[number]
            pairs.append((source, (*tokens[:start], *ids, *tokens[where.end :])))
        best: list[tuple[float, Agreed] | None] = [None] * len(phrases)
        for (number, agreed, behind), losses in zip(rows, log_probabilities(self.model, pairs), strict=True):
            score = ARTICLES * sum(losses[agreed.start : behind]) + sum(losses[behind:])
            before = best[number]
            if before is None or score > before[0]:
                best[number] = score, agreed
        return [None if each is None else each[1] for each in best]

    def _candidates(self, phrase: Phrase) -> Iterator[tuple[Agreed, int]]:
        """What may stand in the place of a word and its article, and the token that the term begins at then."""
        tokenizer = self.model.tokenizer
        texts = tokenizer.cut(phrase.tokens)
        before = "".join(texts[: phrase.where.start])
        start, variants = agreeing(before)
        begin, at = 0, 0
        while begin < phrase.where.start and at + len(texts[begin]) - len(texts[begin].lstrip()) < start:
            at += len(texts[begin])
            begin += 1
        whole = "".join(texts[:begin]).rstrip() == before[:start].rstrip()  # it begins with a token
        if not whole or begin < phrase.free:
            return
        articles = tokenizer.encode_target(variants)
        for variant, ids in zip(variants, articles, strict=True):
            for form in tokenizer.encode_target([f"{variant} {form}" for form in phrase.forms]):
                if form[: len(ids)] == ids:
                    yield Agreed(begin, tuple(form)), begin + len(ids)
