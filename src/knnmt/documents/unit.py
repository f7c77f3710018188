"""Units: the texts of a document that are translated, each with its state and its way back into the file."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum

from knnmt.documents.patches import Patch
from knnmt.text.inline import Inline


class State(StrEnum):
    """How far a unit is translated; `fuzzy` is a translation that somebody has to review."""

    UNTRANSLATED = "untranslated"
    FUZZY = "fuzzy"
    TRANSLATED = "translated"


class Unit:
    """A text to translate. `key` names it as its format does, `line` is where it stands."""

    __slots__ = ("changed", "key", "line", "note", "source", "state", "target")

    def __init__(
        self,
        source: Inline,
        *,
        line: int,
        key: str = "",
        target: Inline | None = None,
        state: State = State.UNTRANSLATED,
    ) -> None:
        self.source, self.target, self.state, self.key, self.line = source, target, state, key, line
        self.note, self.changed = "", False

    def set(self, target: Inline, *, state: State = State.TRANSLATED, note: str = "") -> None:
        """Give the unit a translation; formats with room for notes keep the note beside it."""
        self.target, self.state, self.note, self.changed = target, state, note, True

    def __repr__(self) -> str:
        return f"Unit({self.key or self.line}, {self.source.text!r}, {self.state})"


class Entry(ABC):
    """A place of a file with one or more units (the plural forms of a message), written together."""

    units: Sequence[Unit]
    member: str = ""  # of an archive: where it stands

    @abstractmethod
    def patches(self) -> Iterable[Patch]:
        """The edits that write the units, of which at least one has changed."""

    @property
    def changed(self) -> bool:
        """Whether any unit got a translation."""
        return any(unit.changed for unit in self.units)

    @property
    def state(self) -> State:
        """The state of the whole: that of the unit that needs most work."""
        return min((unit.state for unit in self.units), key=list(State).index)


class Heading(Entry):
    """A part of a file that changes if any of its units does: the language that it names, its plural forms."""

    def __init__(self, others: Sequence[Entry], write: Callable[[], Iterable[Patch]], member: str = "") -> None:
        self.units, self.others, self.write, self.member = (), others, write, member

    @property
    def changed(self) -> bool:
        """Whether any other entry got a translation."""
        return any(entry.changed for entry in self.others)

    def patches(self) -> Iterable[Patch]:
        """The edits of the heading."""
        return self.write()


class Left(Entry):
    """A text that is left as it is, because nobody can translate it piece by piece: a message with ICU plurals."""

    def __init__(self, line: int, reason: str) -> None:
        self.units, self.line, self.reason = (), line, reason

    def patches(self) -> Iterator[Patch]:
        """Nothing to edit."""
        return iter(())


class Value(Entry):
    """A text that its translation replaces, as in formats of one language: `text[start:end]`, by `write`."""

    def __init__(self, unit: Unit, start: int, end: int, write: Callable[[Inline], str]) -> None:
        self.units = (unit,)
        self.start, self.end, self.write = start, end, write

    def patches(self) -> Iterator[Patch]:
        """The translation, in the place of the source."""
        target = self.units[0].target
        assert target is not None
        yield Patch(self.start, self.end, self.write(target))


def cut(inline: Inline, start: int, end: int) -> Inline:
    """The text from one position to another; codes before and behind it stay at its ends."""
    codes = tuple(code._replace(at=min(max(code.at, start), end) - start) for code in inline.codes)
    return Inline(inline.text[start:end], codes)


def trimmed(inline: Inline) -> tuple[str, Inline, str]:
    """The white space before a text, the text, and the white space behind it."""
    text = inline.text
    start, end = len(text) - len(text.lstrip()), len(text.rstrip())
    return (text, cut(inline, 0, 0), "") if start >= end else (text[:start], cut(inline, start, end), text[end:])
