"""The pipeline of a text: split into sentences, protect spans, keep white space, translate, check.

A text that the store contains verbatim comes out as the store has it. Any other is split into lines and sentences, and
those go to the model with their protected spans written in a form that it copies (`knnmt.text.carry`). What comes back
is compared with the source; a sentence that fails is translated again in the next form. One that fails in all of them
stays in the source language, and the translation says so in its `problems`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from knnmt.decode.settings import TranslateSettings
from knnmt.store.digests import one_line
from knnmt.store.numbering import Match
from knnmt.text.capital import with_capital
from knnmt.text.carry import FORMS, LEFT_OUT, WRITTEN, Carried, Form, Languages
from knnmt.text.check import invented
from knnmt.text.held import Held, Item, written
from knnmt.text.inline import Inline
from knnmt.text.unit import Unit, unit_of, whole_unit
from knnmt.text.words import Link, Pair
from knnmt.translate.result import Translation, joined

Progress = Callable[[int], None]
Align = Callable[[Iterable[Pair]], Mapping[Pair, Sequence[Link]]]
"""Links the words of texts and their translations."""
UNTRANSLATED = Translation("", 0.0)


class LineTranslator(Protocol):
    """What translates lines as they are."""

    @property
    def settings(self) -> TranslateSettings:
        """How to translate."""

    @property
    def retrieves(self) -> bool:
        """Whether a store has a say, whose segments have spans as they are written."""

    @property
    def whole(self) -> int:
        """The characters up to which a text is like the store's segments: it is translated whole."""

    def translate(self, texts: Sequence[str], progress: Progress | None = None) -> list[Translation]:
        """One translation for each line."""

    def matches(self, text: str) -> list[Match]:
        """The segments of the store with this very source."""


@dataclass(frozen=True)
class Draft:
    """A translation of a sentence that is still without its spans: `text`, or what is wrong with it."""

    carried: Carried
    found: Translation
    text: str
    problem: str = ""

    @property
    def pair(self) -> Pair:
        """What is aligned to place what was left out."""
        return self.carried.text, self.text


@dataclass
class Work:
    """A sentence on its way: the forms to try, and what came of them, best first."""

    items: list[Item]
    forms: Sequence[Form]
    known: bool = False  # the store has it: it is taken as it is
    plain: bool = False  # its text is this sentence and nothing else
    tried: set[str] = field(default_factory=set)
    found: list[tuple[list[Item], Translation]] = field(default_factory=list)
    problem: str = ""


class Pipeline:
    """Translates texts by what translates lines; `align` links the words of a text and its translation."""

    def __init__(self, lines: LineTranslator, align: Align, languages: Languages) -> None:
        self._lines, self._align, self._languages = lines, align, languages
        self._kinds = frozenset(lines.settings.protected if lines.settings.spans else ())

    def translate(self, units: Sequence[Inline], progress: Progress | None = None) -> list[Translation]:
        """One translation for each text, in order."""
        settings = self._lines.settings
        if not settings.spans and not settings.sentences and not any(unit.codes for unit in units):
            return self._lines.translate([unit.text for unit in units], progress)
        plans = [self._plan(unit) for unit in units]
        works = [work for _, some in plans for work in some if work.forms]
        share = _Share(len(units), len(works), progress)
        while works:
            works = self._round(works, share)
        share.finish()
        return [self._finished(unit, some) for unit, some in plans]

    def _plan(self, source: Inline) -> tuple[Unit, list[Work]]:
        """The sentences of a text, each with the forms to try; none for what needs no translation."""
        unit = self._unit(source, sentences=self._lines.settings.sentences)
        if len(unit.sentences) > 1 and self._stays_whole(unit):
            unit = self._unit(source, sentences=False)
        if not unit.plain and self._known(source.text):
            unit = whole_unit(source)
            return unit, [Work(sentence.core, (LEFT_OUT,), known=True) for sentence in unit.sentences]
        return unit, [
            Work(sentence.core, ()) if sentence.empty else self._work(sentence.core, unit.plain)
            for sentence in unit.sentences
        ]

    def _unit(self, source: Inline, *, sentences: bool) -> Unit:
        return unit_of(source, self._kinds, self._languages.source, sentences=sentences)

    def _stays_whole(self, unit: Unit) -> bool:
        """Whether a text of several sentences is better not split: the store has segments like it, and not all of its
        sentences."""
        text = unit.given.text
        short = len(text) <= self._lines.whole and text == one_line(text)
        return short and not all(self._known(written(sentence.core)) for sentence in unit.sentences)

    def _known(self, text: str) -> bool:
        """Whether the store has a text, and a translation of it with as many lines."""
        found = self._lines.matches(one_line(text))
        breaks = text.strip().count("\n")
        return bool(found) and (not breaks or found[0].segment.target.strip().count("\n") == breaks)

    def _work(self, items: list[Item], plain: bool) -> Work:
        held = any(isinstance(item, Held) for item in items)
        if not held:
            return Work(items, (WRITTEN,), plain=plain)
        if self._known(written(items)):
            codes = [item.raw if isinstance(item, Held) and item.code is None else item for item in items]
            return Work(codes, (LEFT_OUT,), known=True)
        return Work(items, (WRITTEN, *FORMS) if self._lines.retrieves else FORMS)

    def _round(self, works: Sequence[Work], share: "_Share") -> list[Work]:
        """Translate sentences in the next form of each; those that fail and have another one are left."""
        carried: list[tuple[Work, Carried]] = []
        for work in works:
            if (form := self._next(work)) is not None:
                carried.append((work, form))
        found = self._lines.translate([form.text for _, form in carried], share.add) if carried else []
        drafts = [
            (work, draft)
            for (work, form), best in zip(carried, found, strict=True)
            for each in (best, *best.alternatives)
            if (draft := self._draft(work, form, each)) is not None
        ]
        links = self._align(draft.pair for _, draft in drafts if not draft.problem and not draft.carried.whole)
        for work, draft in drafts:
            self._read(work, draft, links.get(draft.pair, ()))
        return [work for work, _ in carried if not work.found]

    def _next(self, work: Work) -> Carried | None:
        """The sentence in its next form that leads to another text than those tried."""
        while work.forms:
            carried = Carried(work.items, work.forms[0], self._languages)
            work.forms = work.forms[1:]
            if carried.text and not (carried.whole and carried.text in work.tried):
                work.tried.add(carried.text)
                return carried
        return None

    def _draft(self, work: Work, carried: Carried, found: Translation) -> Draft | None:
        """A translation, its first letter and numbers mended; None for one that does not count."""
        if work.known:
            if found.match is not None and "\n" in carried.text:
                return Draft(carried, found, found.match.target.strip())
            return None if "\n" in carried.text else Draft(carried, found, found.text)  # None: the model's, on one line
        if found.match is None and not any(found.text.startswith(term.target) for term in found.terms):
            found = replace(found, text=with_capital(carried.text, found.text, self._languages.source))
        if not found.text and not work.plain:
            return Draft(carried, found, found.text, "the translation is empty")
        # without protection the model's word is taken; inline codes are always placed
        return Draft(carried, found, *(carried.mended(found.text) if self._kinds else (found.text,)))

    def _read(self, work: Work, draft: Draft, links: Sequence[Link]) -> None:
        """Take a translation, if it is sound."""
        result: list[Item] | str = draft.problem or draft.carried.placed(draft.text, links)
        if isinstance(result, list) and self._kinds and not work.known:
            result = draft.carried.read(result)
        if isinstance(result, str):
            work.problem = work.problem or result
        else:
            work.found.append((result, draft.found))

    def _finished(self, unit: Unit, works: Sequence[Work]) -> Translation:
        """The translation of a text from those of its sentences."""
        if unit.plain and works[0].found and not works[0].known:
            best, *others = (found for _, found in works[0].found)
            return replace(best, alternatives=tuple(others))
        ranks = range(max(1, *(len(work.found) for work in works))) if works else range(1)
        best, *others = [self._joined(unit, works, rank) for rank in ranks]
        sound = (replace(other, evidence=()) for other in others if not other.problems)
        return replace(best, alternatives=tuple(sound))

    def _joined(self, unit: Unit, works: Sequence[Work], rank: int) -> Translation:
        """The translation of a text from those of this rank, or the last, of its sentences."""
        chosen = [work.found[min(rank, len(work.found) - 1)] if work.found else (work.items, None) for work in works]
        target = unit.target([items for items, _ in chosen])
        parts = [part for _, part in chosen if part is not None] or [UNTRANSLATED]
        problems = [work.problem for work in works if work.problem and not work.found]
        if self._kinds and (differences := _differences(unit.given.text, target.text)):
            problems += differences
            if not any(part.match is not None for part in parts):  # what the store says is not changed
                target = unit.given
        return joined(parts, target, tuple(problems))


def _differences(source: str, target: str) -> list[str]:
    """The spans that a translation as a whole lacks, or has without reason."""
    ours, theirs = Counter(invented(source)), Counter(invented(target))
    lacking = [f"{raw} is missing" for raw in ours - theirs]
    return lacking + [f"{raw} is not in the source" for raw in theirs - ours]


class _Share:
    """Reports the progress of texts while their sentences are translated."""

    def __init__(self, texts: int, sentences: int, report: Progress | None) -> None:
        self._texts, self._sentences, self._report = texts, max(1, sentences), report
        self._done = self._told = 0

    def add(self, sentences: int) -> None:
        """So many sentences more are translated; those tried again do not count twice."""
        self._done = min(self._done + sentences, self._sentences)
        self._tell(self._done * self._texts // self._sentences)

    def finish(self) -> None:
        """All texts are translated."""
        self._tell(self._texts)

    def _tell(self, texts: int) -> None:
        if self._report is not None and texts > self._told:
            self._report(texts - self._told)
            self._told = texts
