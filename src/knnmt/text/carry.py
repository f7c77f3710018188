"""How protected spans go through a model: in forms that models copy, and read back from the translation.

A form writes the spans of a sentence as something short (`{name}`, `4711`, `<b>`), as they are, or leaves them out, to
be placed by word alignment. What comes back is checked; what fails is tried in the next form.
"""

import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple

from knnmt.text import numbers
from knnmt.text.check import invented, problem
from knnmt.text.held import Held, Item
from knnmt.text.placement import CLOSING, Span, number, place
from knnmt.text.spacing import spaced
from knnmt.text.spans import TIME
from knnmt.text.words import Link, words

Style = Literal["written", "names", "digits", "out"]

# what the embedded model copies best, of what was tried; nothing in them is special to it
NAMES = "name user file title page count value field object item size date email total path url number".split()
DIGITS = "4711 5813 7296 3948 6157 8264 9375 2486 7531 6428 5917 4839 3752 8641 1957 2683".split()
TAGS = "b i em strong u tt span code a".split()
NATURAL = {"%%": "%", "&amp;": "&", "&quot;": '"'}


class Form(NamedTuple):
    """How lone spans, pairs of tags, and numbers are written for the model."""

    spans: Style
    pairs: Style
    numbers: Style = "written"


class Languages(NamedTuple):
    """The languages of a text and of its translation; None where they are unknown."""

    source: str | None = None
    target: str | None = None


# pairs are left out first: around words, tags that are written make a small model copy the words too
WRITTEN = Form("written", "out")
LEFT_OUT = Form("out", "out", "out")
FORMS = (
    Form("names", "out"),
    Form("digits", "out", "names"),
    Form("names", "out", "digits"),
    Form("names", "names"),
    Form("out", "out"),
    LEFT_OUT,
)


class Mended(NamedTuple):
    """A translation as it came back, its numbers mended; and what is wrong with it, if anything."""

    text: str
    problem: str = ""


class Carried:
    """A sentence as a form writes it for the model: `text`, and the way back from its translation."""

    def __init__(self, items: Sequence[Item], form: Form, languages: Languages) -> None:
        self.items, self._languages = tuple(items), languages
        self._carriers: dict[str, list[Held]] = defaultdict(list)
        self._numbers: list[str] = []  # all that the translation must have
        self._root = Span()  # holds what is left out
        writer = _Writer(self._root)
        shown = dict(_choose(self.items, form))
        for place_, item in enumerate(self.items):
            text = item if isinstance(item, str) else shown.get(item.number)
            if text is None:
                assert isinstance(item, Held)
                writer.leave_out(item)
                continue
            if isinstance(item, Held):
                self._note(item, text, self.items[place_ + 1 : place_ + 2])
            writer.write(text)
        self.text = writer.finish()

    def _note(self, held: Held, text: str, after: Sequence[Item]) -> None:
        if held.kind != "number" or text != held.raw:
            self._carriers[text].append(held)
            self._numbers += numbers.GROUPS.findall(text)
        elif not (after and isinstance(after[0], str) and TIME.match(after[0])):  # 17 Uhr may be 5 pm
            self._numbers.append(held.raw)

    @property
    def whole(self) -> bool:
        """Whether nothing is left out."""
        return not self._root.inside

    def mended(self, translation: str) -> Mended:
        """A translation with its numbers as in the source."""
        better = numbers.mended(self._numbers, translation, *self._languages)
        if better is None:
            missing = numbers.lost(self._numbers, translation, self._languages.target)
            return Mended(translation, f"{missing[0]} is missing")
        if strange := [raw for raw in invented(better) if raw not in self.text]:
            return Mended(better, f"{strange[0]} is not in the source")
        return Mended(better)

    def placed(self, translation: str, links: Sequence[Link]) -> list[Item]:
        """The translation with what was left out, beside the words that it stood beside.

        links: between the words of `text` and of the translation; none are needed where this is `whole`
        """
        if self.whole:
            return [translation]
        number(self._root, [begin for begin, _ in words(self.text)])
        return list(place(self._root, translation, links))

    def read(self, marks: Sequence[Item]) -> list[Item] | str:
        """What `placed` made of a mended translation with its spans, or what is wrong with it."""
        found = spaced(self.items, list(self._recognised(marks)))
        twice = _any_of(self._carriers)
        for item in found:
            if isinstance(item, str) and (more := twice.search(item)):
                return f"{self._carriers[more[0]][0].raw} occurs too often"
        here = {item.number for item in found if isinstance(item, Held)}
        for held in itertools.chain(*self._carriers.values()):
            if held.number not in here:  # a number too: it was not written as one
                return f"{held.raw} is missing"
        return problem(self.items, found) or found

    def _recognised(self, marks: Sequence[Item]) -> Iterator[Item]:
        """Pieces of text with the carriers in them replaced by their spans; those that occur too often stay text."""
        waiting = {carrier: list(held) for carrier, held in self._carriers.items()}
        pattern = _any_of(waiting)
        for is_text, some in itertools.groupby(marks, key=lambda mark: isinstance(mark, str)):
            if not is_text:
                yield from some
                continue
            text, at = "".join(map(str, some)), 0
            for match in pattern.finditer(text):
                if waiting[match[0]]:
                    yield text[at : match.start()]
                    yield self._in_target(waiting[match[0]].pop(0))
                    at = match.end()
            yield text[at:]

    def _in_target(self, held: Held) -> Held:
        return held._replace(raw=numbers.converted(held.raw, *self._languages)) if held.kind == "number" else held


class _Writer:
    """Writes the text for the model, and notes where something is left out."""

    def __init__(self, root: Span) -> None:
        self._root = root
        self._open = [root]
        self._text = ""
        self._waiting: list[Span] = []  # left out since the last text

    def leave_out(self, held: Held) -> None:
        if held.kind == "break" and self._text and not self._text[-1].isspace():
            self._text += " "
        at = len(self._text)
        if held.partner is not None and held.partner < held.number and len(self._open) > 1:
            span = self._open.pop()
            span.end, span.stop = held, at
        else:
            before = self._text[-1:]
            # a pair needs words, as a link does: `a`
            name = "" if held.partner is None else "a"
            span = Span(held, name=name, begin=at, stop=at, space_before=not before or before.isspace())
            span.visible = held.partner is None and held.kind not in ("tag", "break")
            span.divides = held.kind == "break"
            self._open[-1].inside.append(span)
            if held.partner is not None:
                self._open.append(span)
        self._waiting.append(span)

    def write(self, text: str) -> None:
        if not text:
            return
        for span in self._waiting:
            span.space_after = text[0].isspace()
        if self._waiting and (not self._text or self._text[-1].isspace()):
            # one space instead of what is left out is enough, and none is needed before punctuation
            if text[0].isspace():
                text = text.lstrip()
            elif text.startswith(CLOSING):
                self._text = self._text.rstrip()
        self._waiting = self._waiting if not text else []
        self._text += text

    def finish(self) -> str:
        for span in self._waiting:
            span.space_after = True
        self._text = self._text.rstrip()
        self._root.stop = len(self._text)
        return self._text


def _choose(items: Sequence[Item], form: Form) -> Iterator[tuple[int, str]]:
    """What is written for each span, by number; nothing for those that are left out."""
    plain = "".join(item for item in items if isinstance(item, str))
    shown = "".join(item if isinstance(item, str) else item.raw for item in items if _stays(item, form))
    names, digits = _unused(NAMES, shown, "{%s}"), _unused(DIGITS, shown, "%s")
    tags = _unused(TAGS, shown, "<%s>")
    pairs: dict[int, str] = {}
    for held in items:
        if isinstance(held, str):
            continue
        style = form.pairs if held.partner is not None else form.numbers if held.kind == "number" else form.spans
        if style == "out" or held.kind == "break":
            continue
        if style == "written" and not held.code:
            yield held.number, held.raw
        elif held.partner is not None:
            tag = next(tags) if held.partner > held.number else pairs[held.partner].replace("<", "</")
            pairs[held.number] = tag
            yield held.number, tag
        elif style == "names" and held.raw in NATURAL and NATURAL[held.raw] not in plain:
            yield held.number, NATURAL[held.raw]
        else:
            yield held.number, next(digits if style == "digits" else names)


def _stays(item: Item, form: Form) -> bool:
    """Whether an item may be in the text for the model as it is."""
    return isinstance(item, str) or item.kind == "number" or form.spans == "written"


def _unused(pool: Sequence[str], text: str, form: str) -> Iterator[str]:
    """Carriers that do not occur in a text; more than the pool has are numbered."""
    numbered = (f"{word}{count}" for count in itertools.count(2) for word in pool)
    return (form % word for word in itertools.chain(pool, numbered) if form % word not in text)


def _any_of(carriers: Sequence[str] | dict[str, list[Held]]) -> re.Pattern[str]:
    """Any of these; none inside a longer word or number."""
    found = []
    for carrier in sorted(carriers, key=len, reverse=True):
        before = r"(?<!\w)" if carrier[0].isalnum() else ""
        after = r"(?![\d$])" if carrier[-1].isdigit() else ""
        found.append(before + re.escape(carrier) + after)
    return re.compile("|".join(found) or r"(?!)")
