"""Glossaries: the server's own, and the terms that a client sends with a request."""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field, StrictStr

from knnmt.languages import Languages
from knnmt.server.fields import WRITTEN
from knnmt.text.glossary import Glossary
from knnmt.text.terms import Term
from knnmt.translate import Translation
from knnmt.translate.terms import NO_PLACE

MAX_TERMS, MAX_LENGTH = 500, 200  # terms of a request, and characters of each side
CACHED = 16  # glossaries of clients that are kept: they come with every request


class TermIn(BaseModel):
    """A term: its translation wherever it occurs, inflected where the language does so."""

    model_config = ConfigDict(extra="forbid", str_strip_whitespace=True, frozen=True)

    source: StrictStr = Field(
        min_length=1, max_length=MAX_LENGTH, pattern=WRITTEN, description="term in the source language"
    )
    target: StrictStr = Field(min_length=1, max_length=MAX_LENGTH, pattern=WRITTEN, description="its translation")


class PlacedTerm(NamedTuple):
    """What became of a term of the source, and where in the translation it is."""

    source: str
    target: str
    used: bool
    reason: str
    start: int | None
    end: int | None


class Glossaries:
    """The glossary of a server, alone or behind the terms of a request."""

    def __init__(self, own: Glossary | None, languages: Languages) -> None:
        self.own = own.between(languages) if own is not None else None
        self._languages = languages
        self._merged = lru_cache(CACHED)(self._merge)

    def of(self, terms: Sequence[TermIn]) -> Glossary | None:
        """The glossary for a request: its terms count before those of the server."""
        return self._merged(tuple(terms)) if terms else self.own

    def _merge(self, terms: tuple[TermIn, ...]) -> Glossary:
        first = [Term(each.source, each.target) for each in terms]
        given = {term.source.casefold() for term in first}
        rest = (term for term in (self.own.terms if self.own else ()) if term.source.casefold() not in given)
        return Glossary((*first, *rest), self._languages)


def placed(glossary: Glossary, source: str, found: Translation) -> list[PlacedTerm]:
    """What became of the terms of a source text, each with its place in the translation."""
    terms = glossary.found(source)
    places: dict[Term, list[tuple[int, int]]] = {}
    for start, end, term in glossary.places(terms, found.text):
        places.setdefault(term, []).append((start, end))
    # a text that was translated in pieces has no report as a whole
    uses = found.terms or glossary.report(source, found.text, NO_PLACE)
    shown = []
    for each, use in zip(terms, uses, strict=True):
        left = places.get(each.term, [])
        shown.append(PlacedTerm(*use, *(left.pop(0) if use.used and left else (None, None))))
    return shown
