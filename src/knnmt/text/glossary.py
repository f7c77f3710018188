"""A glossary: how terms are to be translated, where they are found in a text, and whether a translation uses them."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple, NoReturn, Self

from knnmt.errors import DataError, UsageError
from knnmt.languages import Languages, closeness, standard_tag
from knnmt.text.glossary_files import Bad, read_terms
from knnmt.text.glossary_forms import NOUN, source_forms, term_forms
from knnmt.text.spans import ON, find
from knnmt.text.terms import Found, Term, TermUse

WORD = re.compile(r"\w+(?:[-'’]\w+)*|[^\w\s]")  # a hyphenated word is one word: nothing is matched inside it
PROTECTED = ON - {"number", "script"}
POSSESSIVE = re.compile("(?:['’]s|(?<=s)['’])$")
ENDS = frozenset('.!?:;…•-–—"“”„»«()[]')  # what a sentence may begin behind
COMPOUND = 4  # letters of a German noun from which on it is used where a compound has it: «Dateiname» uses «Datei»


class Glossary:
    """Terms with their translations, in one direction.

    >>> glossary = Glossary.read("terms.tsv", "de-en")
    >>> [found.term.target for found in glossary.found("Die Dateien im Verzeichnis")]
    ['file', 'directory']
    >>> glossary.check("Die Dateien im Verzeichnis", "The files in the folder")
    ['«directory» is not used for «Verzeichnis»']

    Where the languages are unknown, words are found only as they are written.
    """

    def __init__(self, terms: Iterable[Term], languages: Languages | str | None = None) -> None:
        self.terms = tuple(terms)
        self.languages = Languages.parse(languages) if isinstance(languages, str) else languages
        self._source = _short(self.languages.source) if self.languages else None
        self._target = _short(self.languages.target) if self.languages else None
        self._uses: dict[Term, re.Pattern[str]] = {}
        self._between: dict[Languages, Glossary] = {}

    @classmethod
    def read(cls, path: str | Path, languages: Languages | str | None = None, *, bad: Bad | None = None) -> Self:
        """Read a TSV, CSV or TBX file. What is wrong with an entry is raised, or given to `bad` and left out."""

        def refuse(error: DataError) -> NoReturn:
            raise error

        pair = Languages.parse(languages) if isinstance(languages, str) else languages
        terms, named = read_terms(Path(path), pair, bad or refuse)
        return cls(terms, named or pair)

    def between(self, languages: Languages) -> "Glossary":
        """This glossary for a translator of these languages; it is refused if it names others."""
        if self.languages is None:
            if languages not in self._between:
                self._between[languages] = Glossary(self.terms, languages)
            return self._between[languages]
        if not closeness(self.languages.source, languages.source) or not closeness(
            self.languages.target, languages.target
        ):
            raise UsageError(f"the glossary is {self.languages}, but the translation is {languages}; use another one")
        return self

    @property
    def fingerprint(self) -> str:
        """A hash of all that a translation depends on."""
        return blake2b(repr((self.terms, self.languages)).encode(), digest_size=16).hexdigest()

    def __len__(self) -> int:
        return len(self.terms)

    # -------------------------------------------------------------------------------------- in a source text

    def found(self, text: str) -> list[Found]:
        """The terms in a source text, in order, none overlapping: the longest at each place, then the first."""
        words = [_Word(match[0], match.start(), match.end()) for match in WORD.finditer(text)]
        if not any(self._candidates(word) for word in words):
            return []
        spans = find(text, PROTECTED, self._source)
        found = []
        at = 0
        while at < len(words):
            fitting = [pattern for pattern in self._candidates(words[at]) if pattern.fits(words, at)]
            if not fitting:
                at += 1
                continue
            best = max(fitting, key=lambda pattern: (len(pattern.words), -pattern.rank))
            start, end = words[at].start, words[at + len(best.words) - 1].end
            protected = any(span.start < end and start < span.end for span in spans)
            found.append(Found(best.term, start, end, protected))
            at += len(best.words)
        return found

    def _candidates(self, word: "_Word") -> "list[_Pattern]":
        """The terms that may begin with a word."""
        return [*self._index.get(word.folded, ()), *(each for each in self._open if each.words[0].takes(word.folded))]

    @cached_property
    def _patterns(self) -> "list[_Pattern]":
        return [_Pattern.of(term, rank, self._source) for rank, term in enumerate(self.terms)]

    @cached_property
    def _index(self) -> "dict[str, list[_Pattern]]":
        """Terms by the forms of their first word, but for those that begin with a wildcard word."""
        index: dict[str, list[_Pattern]] = defaultdict(list)
        for pattern in self._patterns:
            for form in pattern.words[0].folded if not pattern.words[0].open else ():
                index[form].append(pattern)
        return index

    @cached_property
    def _open(self) -> "list[_Pattern]":
        return [pattern for pattern in self._patterns if pattern.words[0].open]

    # ---------------------------------------------------------------------------------------- in a translation

    @property
    def german(self) -> bool:
        """Whether terms are German, where an article and adjectives agree with them."""
        return self._target == "de"

    def forms(self, term: Term) -> list[str]:
        """The forms of a term's translations that count as its use, the preferred one first."""
        return list(dict.fromkeys(form for each in term.targets for form in term_forms(each, self._target, term.pos)))

    def forbidden(self, found: Sequence[Found]) -> list[tuple[Term, str]]:
        """The words that a translation of these terms must not have, in all forms; not those of other terms."""
        wanted = {form.lower() for each in found for form in self.forms(each.term)}
        every = {each.term: None for each in found if not each.protected}
        return [
            (term, form)
            for term in every
            for word in term.forbidden
            for form in term_forms(word, self._target, term.pos)
            if form.lower() not in wanted
        ]

    def places(self, found: Sequence[Found], target: str) -> list[tuple[int, int, Term]]:
        """Where a translation uses the terms that were found in its source: start, end and term.

        A term is used as often as it was found, at most. What is a use of a longer term is none of a shorter one.
        """
        counts = Counter(each.term for each in found if not each.protected)
        there = []
        for term in sorted(counts, key=lambda one: -max(map(len, one.targets))):
            for place in list(self._pattern_of(term).finditer(target))[: counts[term]]:
                there.append((*place.span(), term))
                target = target[: place.start()] + "\0" * len(place[0]) + target[place.end() :]
        return sorted(there, key=lambda one: one[:2])

    def uses(self, found: Sequence[Found], target: str) -> list[bool]:
        """Whether a translation uses each of the terms that were found in its source: twice what is there twice."""
        there = Counter(term for _, _, term in self.places(found, target))
        used = []
        for each in found:
            used.append(not each.protected and there[each.term] > 0)
            there[each.term] -= used[-1]
        return used

    def wrong(self, found: Sequence[Found], target: str) -> list[tuple[Term, str]]:
        """The forbidden words that a translation has, with the terms that forbid them."""
        return [(term, word) for term, word in self.forbidden(found) if _whole(word).search(target)]

    def check(self, source: str, target: str) -> list[str]:
        """What is wrong with a translation: terms that it does not use, forbidden words that it has."""
        found = self.found(source)
        missing = [
            each.term
            for each, used in zip(found, self.uses(found, target), strict=True)
            if not used and not each.protected
        ]
        told = [f"«{term.target}» is not used for «{_bare(term)}»" for term in missing]
        told += [f"«{word}» is forbidden for «{_bare(term)}»" for term, word in self.wrong(found, target)]
        return list(dict.fromkeys(told))

    def report(self, source: str, target: str, reason: str) -> tuple[TermUse, ...]:
        """What became of each term of a source text; `reason` says why those that could be used are not."""
        found = self.found(source)
        wrong = dict(self.wrong(found, target))
        told = []
        for each, used in zip(found, self.uses(found, target), strict=True):
            why = "" if used else "it is inside a protected span" if each.protected else reason
            if each.term in wrong:
                why = f"the translation has the forbidden word «{wrong[each.term]}»"
            told.append(TermUse(_bare(each.term), each.term.target, used, why))
        return tuple(told)

    def _pattern_of(self, term: Term) -> re.Pattern[str]:
        """What is a use of a term in a translation."""
        if term not in self._uses:
            forms = sorted(self.forms(term), key=len, reverse=True)
            whole = "|".join(r"\s+".join(map(re.escape, form.split())) for form in forms)
            pattern = rf"(?<!\w)(?:{whole})(?!\w)"
            if self._target == "de" and (parts := [each for each in term.targets if _compounds(each, term.pos)]):
                inside = "|".join(map(re.escape, parts))
                pattern += rf"|\b(?:{inside})\w+|\w+(?i:{inside})\w*"
            self._uses[term] = re.compile(pattern, 0 if term.case else re.IGNORECASE)
        return self._uses[term]

    # -------------------------------------------------------------------------------------------- as a whole

    def problems(self) -> list[tuple[int, str]]:
        """What is wrong with the glossary itself, with the lines: see `_problems`."""
        return sorted(set(self._problems()))

    def _problems(self) -> Iterator[tuple[int, str]]:
        """Terms of the same source with different targets, terms that others always win against, and targets that are
        forbidden."""
        first: dict[tuple[str, bool], Term] = {}
        for term, pattern in zip(self.terms, self._patterns, strict=True):
            bad = {word.lower() for word in term.forbidden}
            for target in term.targets:
                if target.lower() in bad:
                    yield term.line, f"«{target}» is both the target and a forbidden word of «{term.source}»"
            key = (term.source if term.case else term.source.lower(), term.case)
            before = first.setdefault(key, term)
            if before is not term:
                same = "the same target" if set(before.targets) == set(term.targets) else f"«{before.target}»"
                yield term.line, f"«{term.source}» is a duplicate of line {before.line}, which has {same}"
                continue
            words = [_Word(text, 0, 0) for text in _words(term.source)]
            for other in self._candidates(words[0]):
                if other.rank < pattern.rank and len(other.words) >= len(words) and other.fits(words, 0):
                    shadow = f"«{term.source}» is never used: «{other.term.source}» of line {other.term.line}"
                    yield term.line, f"{shadow} matches the same words and comes first"
                    break


class _Word(NamedTuple):
    """A word of a text."""

    text: str
    start: int
    end: int

    @property
    def folded(self) -> str:
        return POSSESSIVE.sub("", self.text).casefold()


class _Matcher(NamedTuple):
    """A word of a term: the forms it is found in."""

    written: str
    cased: frozenset[str]
    folded: frozenset[str]
    before: bool  # a longer word may end with it
    after: bool  # a longer word may begin with it

    @property
    def open(self) -> bool:
        return self.before or self.after

    def takes(self, folded: str) -> bool:
        """Whether a word is a form of this one, whatever its case."""
        if not self.open:
            return folded in self.folded
        return any(
            (self.before and folded.endswith(form))
            or (self.after and folded.startswith(form))
            or (self.before and self.after and form in folded)
            for form in self.folded
        )


class _Pattern(NamedTuple):
    """A term as it is matched."""

    term: Term
    rank: int  # in the glossary
    words: tuple[_Matcher, ...]
    german: bool

    @classmethod
    def of(cls, term: Term, rank: int, language: str | None) -> "_Pattern":
        words = _words(term.source)
        matchers = []
        for place, text in enumerate(words):
            word = text.strip("*") or text
            last = place == len(words) - 1
            pos = term.pos or (NOUN if text[:1] == "*" else "")  # the end of a compound
            cased = frozenset(source_forms(word, language, pos, last=last))
            folded = frozenset(form.casefold() for form in cased)
            matchers.append(_Matcher(word, cased, folded, text[:1] == "*" != text, text[-1:] == "*" != text))
        return cls(term, rank, tuple(matchers), language == "de")

    def fits(self, words: Sequence[_Word], at: int) -> bool:
        """Whether the words from a place on are this term."""
        some = words[at : at + len(self.words)]
        return len(some) == len(self.words) and all(
            matcher.takes(word.folded)
            and self._case(matcher, word.text, _begins(words, at + place))
            and not (self.german and matcher.written[:1].isupper() and _commands(words, at + place))
            for place, (matcher, word) in enumerate(zip(self.words, some, strict=True))
        )

    def _case(self, matcher: _Matcher, text: str, begins: bool) -> bool:
        """Whether a word has the right case. German nouns have a capital, and what has none is no noun."""
        if self.term.case:
            return matcher.open or POSSESSIVE.sub("", text) in matcher.cased
        if not self.german or matcher.open or text.isupper():
            return True
        return matcher.written[:1].isupper() == text[:1].isupper() or (begins and text[:1].isupper())


def _words(term: str) -> list[str]:
    """The words of a term, each with its wildcards."""
    return [match[0] for match in re.finditer(rf"\*?(?:{WORD.pattern})\*?", term)]


def _begins(words: Sequence[_Word], place: int) -> bool:
    """Whether a sentence may begin with a word."""
    return place == 0 or words[place - 1].text in ENDS


def _commands(words: Sequence[_Word], place: int) -> bool:
    """Whether a German word is an imperative, though it has a noun's capital: «Klicken Sie» is not «Klick»."""
    return _begins(words, place) and [word.text for word in words[place + 1 : place + 2]] == ["Sie"]


def _whole(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w){re.escape(text)}(?!\w)", re.IGNORECASE)


def _compounds(target: str, pos: str) -> bool:
    """Whether a German term may be part of a compound."""
    noun = pos == NOUN or (not pos and target[:1].isupper())
    return noun and target.isalpha() and len(target) >= COMPOUND


def _bare(term: Term) -> str:
    return term.source.replace("*", "")


def _short(tag: str) -> str:
    return standard_tag(tag).split("-")[0]
