"""Terms of a glossary in translations: the search is free first, and bound where its result lacks a term.

So a sentence without terms, or one whose terms come out right, costs nothing more. Where a term is lacking, the word
that renders it is found (`renditions`), and the search goes on from the word before it, bound to have the term there.
What follows is free again, so that it fits the term; the next term that is lacking is then brought in the same way. A
translation with a term may be less probable than the one without it; where it is by far, the term does not fit.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from knnmt.decode.beam import Hypothesis
from knnmt.decode.constraints import FAR, Edges, Forms, Wishes
from knnmt.model.tokenizer import Tokenizer
from knnmt.text.glossary import Glossary
from knnmt.text.terms import Found, Term
from knnmt.translate.agreement import Agreed, Agreement, Phrase
from knnmt.translate.renditions import Asked, Rendition, Renditions
from knnmt.translate.result import Translation
from knnmt.translate.search import BatchSearch, Bound

ROUNDS = 8  # terms of a sentence that are brought in
LEAST = 5  # beams of a bound search
WRONG = -1  # among places of terms: forbidden words
# nats that a term may cost: a translation with it may be e^40 times less probable, where it takes the place of the word
# that renders it; e^15 times, where the search chooses its place
MARGIN, FREE_MARGIN = 40.0, 15.0
LONGER, SPARE = 1.3, 5  # a bound translation may be so many times as long as the free one, and so many tokens more
NO_PLACE = "a translation with it is too improbable"
MATCH = "the memory has this text, and its translation is taken as it is"
LEFT = "the text stays in the source language"


@dataclass
class _Piece:
    """A sentence that lacks terms: its translation so far."""

    number: int
    text: str
    found: list[Found]
    best: list[Hypothesis]
    settled: int = 0  # tokens of the translation that later rounds keep
    given_up: set[int] = field(default_factory=set)  # places in `found`
    changed: bool = False


class _Aim(NamedTuple):
    """A term to bring into a translation (None: a word to keep out), and where."""

    place: int | None  # in `found`
    where: Rendition | None


@dataclass(frozen=True)
class TermSearch:
    """The search for translations that use the terms of a glossary."""

    search: BatchSearch
    glossary: Glossary

    def run(
        self, texts: Sequence[str], pieces: list[list[int]], progress: Callable[[int], None] | None
    ) -> tuple[list[list[Hypothesis]], set[int]]:
        """The best hypotheses of each piece, given as text and ids, and the numbers of those that a term decided."""
        hypotheses = self.search.run(pieces, progress)
        lacking = []
        for number, text in enumerate(texts):
            found = [each for each in self.glossary.found(text) if not each.protected]
            if found and hypotheses[number]:
                lacking.append(_Piece(number, text, found, hypotheses[number]))
        decided: set[int] = set()
        for _ in range(ROUNDS):
            aims = self._aims(lacking)
            lacking = [piece for piece, aim in zip(lacking, aims, strict=True) if aim is not None]
            if not lacking:
                break
            self._round(lacking, [aim for aim in aims if aim is not None], [pieces[each.number] for each in lacking])
            for piece in lacking:
                hypotheses[piece.number] = piece.best
                decided |= {piece.number} if piece.changed else set()
        return hypotheses, decided

    def _aims(self, pieces: Sequence[_Piece]) -> list[_Aim | None]:
        """What to mend next in each translation, from the left; None where nothing is left to do."""
        renditions = Renditions(self.search.model)
        asked: list[tuple[int, int, Asked]] = []
        aims: list[list[_Aim]] = [[] for _ in pieces]
        for row, piece in enumerate(pieces):
            if not self._lacks(piece, piece.best[0]):
                continue
            tokens = piece.best[0].tokens
            text = "".join(self.search.model.tokenizer.cut(tokens))
            used = self.glossary.uses(piece.found, text)
            taken = tuple((start, stop) for start, stop, _ in self.glossary.places(piece.found, text))
            terms = Counter(each.term for each, one in zip(piece.found, used, strict=True) if not one)
            for place, each in enumerate(piece.found):
                if each.term in terms and place not in piece.given_up:
                    places = tuple((one.start, one.end) for one in piece.found if one.term == each.term)
                    asked.append((row, place, Asked(piece.text, places, tokens, taken, terms[each.term])))
            if not terms and WRONG not in piece.given_up and (wrong := self.glossary.wrong(piece.found, text)):
                at = re.search(rf"(?<!\w){re.escape(wrong[0][1])}(?!\w)", text, re.IGNORECASE)
                aims[row].append(_Aim(None, renditions.at(tokens, at.start() if at else 0)))
        for (row, place, _), where in zip(asked, renditions.find([each for _, _, each in asked]), strict=True):
            aims[row].append(_Aim(place, where))
        return [self._first(piece, some) for piece, some in zip(pieces, aims, strict=True)]

    def _first(self, piece: _Piece, aims: Sequence[_Aim]) -> _Aim | None:
        """The leftmost aim whose place is not yet settled; else one that is rendered nowhere."""
        ahead = [aim for aim in aims if aim.where is not None and aim.where.end > piece.settled]
        if ahead:
            return min(ahead, key=lambda aim: aim.where.start if aim.where is not None else 0)
        return _Aim(aims[0].place, None) if aims else None

    def _round(self, pieces: Sequence[_Piece], aims: Sequence[_Aim], ids: list[list[int]]) -> None:
        """Search once more for each translation, bound to have one more of its terms: in the place of its rendition,
        and else with all that follows free."""
        model, settings = self.search.model, self.search.settings
        edges = word_edges(model.tokenizer, model.transformer.architecture.target_vocabulary)
        search = replace(self.search, settings=settings.model_copy(update={"beam": max(LEAST, settings.beam)}))
        left = list(range(len(pieces)))
        agreed = self._agreed(pieces, aims)
        for keep in (True, False):
            some = [row for row in left if not keep or (aims[row].where is not None and aims[row].place is not None)]
            bound = {row: self._bound(pieces[row], aims[row], edges, agreed.get(row), keep=keep) for row in some}
            bound = {row: each for row, each in bound.items() if each.wishes.possible}
            found = search.run([ids[row] for row in bound], None, list(bound.values()), edges) if bound else []
            for (row, each), better in zip(bound.items(), found, strict=True):
                piece = pieces[row]
                if better and self._is_better(piece, better[0], MARGIN if keep else FREE_MARGIN):
                    behind = len(piece.best[0].tokens) - (where.end if (where := aims[row].where) else 0)
                    settled = len(better[0].tokens) - behind if keep else len(each.wishes.prefix)
                    piece.best, piece.changed = better, True
                    piece.settled = max(piece.settled, settled)
                    left.remove(row)
        for row in left:
            place = aims[row].place
            pieces[row].given_up.add(WRONG if place is None else place)

    def _agreed(self, pieces: Sequence[_Piece], aims: Sequence[_Aim]) -> dict[int, Agreed]:
        """Terms with the articles that agree with them, by the numbers of their translations."""
        phrases: dict[int, Phrase] = {}
        for row, (piece, aim) in enumerate(zip(pieces, aims, strict=True)):
            if aim.place is not None and aim.where is not None and self.glossary.german:
                term, tokens = piece.found[aim.place].term, piece.best[0].tokens
                phrases[row] = Phrase(piece.text, tokens, aim.where, piece.settled, self.glossary.forms(term))
        found = Agreement(self.search.model).choose(list(phrases.values()))
        return {row: each for row, each in zip(phrases, found, strict=True) if each is not None}

    def _bound(self, piece: _Piece, aim: _Aim, edges: Edges, agreed: Agreed | None, *, keep: bool) -> Bound:
        """How a translation goes on from the word before a rendition: with the term, and without forbidden words.

        `keep`: behind the term it is as it was."""
        tokens = piece.best[0].tokens
        prefix, earliest, deadline = piece.settled, 0, FAR
        wishes = self._wishes(piece, aim, edges)
        if aim.where is not None and aim.place is None:
            prefix = max(prefix, aim.where.start)
        elif aim.where is not None:
            prefix = max(prefix, aim.where.before)
            deadline = max(prefix, aim.where.start)
            earliest = min(prefix + 1, deadline)  # the word before it may change, but not be left out
            if keep and agreed is not None:
                prefix = earliest = deadline = agreed.start
                phrase = frozenset({agreed.ids})
                wishes = replace(wishes, wanted=((Forms(phrase, phrase), 1),))
            if keep:
                rests = {tokens[end:-1] for end in (aim.where.end, aim.where.longer)}
                wishes = replace(wishes, wanted=tuple((forms.then(rests), count) for forms, count in wishes.wanted))
        limit = wishes.tokens + SPARE + (prefix if keep else int(LONGER * len(tokens)))
        return Bound(replace(wishes, prefix=tokens[:prefix], earliest=earliest, deadline=deadline), limit)

    def _is_better(self, piece: _Piece, bound: Hypothesis, margin: float) -> bool:
        """Whether a translation has more of its terms, at a price that is not too high."""
        gained = self._lacks(piece, piece.best[0]) - self._lacks(piece, bound)
        return gained > 0 and piece.best[0].log_p - bound.log_p <= margin * gained

    def _lacks(self, piece: _Piece, hypothesis: Hypothesis) -> int:
        """How many terms a translation lacks, and how many forbidden words it has."""
        text = self._text(hypothesis)
        return self.glossary.uses(piece.found, text).count(False) + len(self.glossary.wrong(piece.found, text))

    def _text(self, hypothesis: Hypothesis) -> str:
        return self.search.model.tokenizer.decode(hypothesis.tokens)

    def _wishes(self, piece: _Piece, aim: _Aim, edges: Edges) -> Wishes:
        """What a translation must have and must not have, as tokens."""
        terms = []
        if aim.place is not None:
            each = piece.found[aim.place]
            style = Style.ALL_CAPITALS if shouted(piece.text[each.start : each.end], each.term) else Style.ANY
            if style == Style.ANY and aim.where is not None:
                style = self._style(piece.best[0].tokens, aim.where)
            terms.append((self._forms(self.glossary.forms(each.term), each.term, style, edges), 1))
        words: dict[Term, list[str]] = {}
        for term, word in self.glossary.forbidden(piece.found):
            words.setdefault(term, []).append(word)
        forbidden = Forms()
        for term, some in words.items():
            forbidden |= self._forms(some, term, Style.ANY, edges)
        return Wishes(tuple(terms), forbidden)

    def _style(self, tokens: Sequence[int], where: Rendition) -> "Style":
        """How the term is written that takes the place of a word: with a capital only if that has one."""
        texts = self.search.model.tokenizer.cut(tokens)
        if not next(filter(str.isalnum, "".join(texts[where.start :])), "").isupper():
            return Style.AS_WRITTEN
        begins = not any(map(str.isalnum, "".join(texts[: where.start])))
        return Style.CAPITAL if begins else Style.ANY

    def _forms(self, texts: Sequence[str], term: Term, style: "Style", edges: Edges) -> Forms:
        """The tokens of texts at the beginning of a word, behind a space and, as behind a bracket, without one."""
        written = [text for each in texts for text in cased(each, term, style)]
        tokenizer = self.search.model.tokenizer
        bracket, *inside = tokenizer.encode_target(["(", *("(" + text for text in written)])
        joined = [ids[len(bracket) :] for ids in inside if ids[: len(bracket)] == bracket]
        spaced = tokenizer.encode_target(written)
        known = set(written)
        spaced, joined = ([ids for ids in some if tokenizer.decode(ids) in known] for some in (spaced, joined))
        if edges.starts.all():  # tokens say where a word ends: there, any may follow
            return Forms(joined=frozenset(map(tuple, spaced)))
        return Forms(frozenset(map(tuple, spaced)), frozenset(map(tuple, joined)))


def reported(glossary: Glossary, source: str, found: Translation) -> Translation:
    """A translation with what became of the terms of its source."""
    reason = MATCH if found.match is not None else LEFT if found.problems else NO_PLACE
    return replace(found, terms=glossary.report(source, found.text, reason))


def shouted(surface: str, term: Term) -> bool:
    """Whether a term is in capitals where a glossary has it otherwise."""
    return not term.case and surface.isupper() and sum(map(str.isalpha, surface)) > 1 and not term.source.isupper()


class Style(Enum):
    """How the forms of a term are written."""

    AS_WRITTEN = auto()
    CAPITAL = auto()  # the first letter
    ANY = auto()  # of these two, whichever is more probable
    ALL_CAPITALS = auto()


def cased(form: str, term: Term, style: Style) -> list[str]:
    """The ways in which a form of a term may be written."""
    capital = form[:1].upper() + form[1:]
    if term.case or style == Style.AS_WRITTEN:
        return [form]
    if style == Style.ALL_CAPITALS:
        return [form.upper()]
    return [capital] if style == Style.CAPITAL else list(dict.fromkeys((form, capital)))


@lru_cache(maxsize=8)
def word_edges(tokenizer: Tokenizer, size: int) -> Edges:
    """Where words begin and end, by the tokens of a vocabulary."""
    pieces = [(piece or "").replace("Ġ", "▁") for piece in tokenizer.pieces(range(size))]
    if any(piece.endswith("</w>") for piece in pieces):
        return Edges(np.ones(size, np.bool_), np.array([piece.endswith("</w>") for piece in pieces]))
    starts = np.array([not _letter(piece[:1]) for piece in pieces])
    return Edges(starts, np.array([not _letter(piece[-1:]) for piece in pieces]))


def _letter(character: str) -> bool:
    return character.isalnum() or character == "_"
