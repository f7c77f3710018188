"""Pre-translation: fill a document's units with what a translator makes of them, and mark who made it.

What is finished is kept in a file beside the output, so that an interrupted run is resumed by the same command.
"""

import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from knnmt.checks import check
from knnmt.documents.document import Document
from knnmt.documents.unit import State, Unit
from knnmt.files import write_whole
from knnmt.text.glossary import Glossary
from knnmt.text.inline import Code, Inline

WINDOW = 64  # texts that are translated together: a second of work, which is what an interruption may lose
USUAL = 40  # characters of a text, on average: a window has fewer texts where they are longer


class Translated(NamedTuple):
    """What a translator makes of a text; with problems it is not used, unless the memory has it so."""

    target: Inline
    score: float = 0.0
    exact: bool = False  # taken from the memory, which has this very text
    problems: tuple[str, ...] = ()
    match: float | None = None  # score of the best fuzzy match, 0 where there is none; None without a memory

    @property
    def placed(self) -> bool:
        """Whether there are codes between its words: the memory has none, and does not say where they belong."""
        return any(0 < code.at < len(self.target.text) for code in self.target.codes)

    @property
    def certain(self) -> bool:
        """Whether it needs no review."""
        return self.exact and not self.problems and not self.placed

    @property
    def note(self) -> str:
        """What a reviewer is told."""
        if self.exact:
            return f"exact match of the translation memory{', tags placed by machine' if self.placed else ''}"
        made = f"machine translation, score {self.score:.2f}"
        if self.match is None:
            return made
        return f"{made}; {f'fuzzy match {self.match:.0%}' if self.match else 'no match'} in the translation memory"


Translate = Callable[[Sequence[Inline]], Sequence[Translated]]


@dataclass
class Tally:
    """What was done: units and words that were translated, and what was not."""

    units: int = 0
    words: int = 0
    exact: int = 0
    kept: int = 0  # translated before
    left: int = 0  # in a form that nobody can translate piece by piece
    problems: list[str] = field(default_factory=list)  # what a reviewer should look at

    def add(self, other: "Tally") -> None:
        """Count another document too."""
        self.units, self.words, self.exact = (
            self.units + other.units,
            self.words + other.words,
            self.exact + other.exact,
        )
        self.kept, self.left = self.kept + other.kept, self.left + other.left
        self.problems += other.problems


def pretranslate(
    document: Document,
    translate: Translate,
    *,
    everything: bool = False,
    finished: "Finished | None" = None,
    glossary: Glossary | None = None,
    window: int = WINDOW,
    progress: Callable[[int], None] | None = None,
) -> Tally:
    """Translate the units that are untranslated or fuzzy, or `everything`; exact matches need no review, unless
    codes were placed between their words.

    Every translation is checked, its terms against the `glossary`. `translate` gets `window` texts at a time, those of
    similar length together: batches have little padding then.
    """
    finished = Finished() if finished is None else finished
    tally = Tally(left=len(document.left))
    if not everything:
        tally.kept = sum(unit.state is State.TRANSLATED for unit in document.units)
    chosen = to_translate(document, everything=everything)
    new = list(dict.fromkeys(unit.source for unit in chosen if unit.source not in finished))
    done = len({unit.source for unit in chosen}) - len(new)
    if progress is not None and done:
        progress(done)
    for some in _windows(new, window):
        finished.add(some, translate(some))
        if progress is not None:
            progress(len(some))
    for unit in chosen:
        _fill(unit, finished[unit.source], tally)
        tally.problems += _problems(unit, finished[unit.source], document, glossary)
    return tally


def _windows(texts: Sequence[Inline], window: int) -> Iterator[list[Inline]]:
    """Texts, the longest first: `window` of usual length at a time, fewer of longer ones."""
    some: list[Inline] = []
    for text in sorted(texts, key=lambda each: -len(each.text)):
        if some and len(some) * max(USUAL, len(some[0].text)) >= window * USUAL:
            yield some
            some = []
        some.append(text)
    if some:
        yield some


def to_translate(document: Document, *, everything: bool = False) -> list[Unit]:
    """The units that are untranslated or fuzzy, or `everything`, without those that have no letters."""
    chosen = (unit for unit in document.units if everything or unit.state is not State.TRANSLATED)
    return [unit for unit in chosen if any(map(str.isalpha, unit.source.text))]


def texts_of(document: Document, *, everything: bool = False) -> int:
    """The number of different texts that `pretranslate` would translate."""
    return len({unit.source for unit in to_translate(document, everything=everything)})


def _fill(unit: Unit, found: Translated, tally: Tally) -> None:
    if found.problems and not found.exact:
        return
    unit.set(found.target, state=State.TRANSLATED if found.certain else State.FUZZY, note=found.note)
    tally.units += 1
    tally.words += len(unit.source.text.split())
    tally.exact += found.exact


def _problems(unit: Unit, found: Translated, document: Document, glossary: Glossary | None) -> Iterator[str]:
    """What a reviewer should look at: why the unit is not translated, or what the checks say."""
    place = f"{document.content.name}:{unit.line}"
    if found.problems and not found.exact:
        yield f"{place}: untranslated: {'; '.join(found.problems)}"
        return
    findings = check(unit.source, found.target, document.content.languages, glossary)
    yield from (f"{place}: {kind}: {message}" for kind, message in findings)
    known = {message for _, message in findings}
    yield from (f"{place}: placeholder: {problem}" for problem in found.problems if problem not in known)


class Finished:
    """Translations by source; with a path, kept there as JSON lines until the work is done.

    The first line says what they were made with: those of another model or store are not used.
    """

    def __init__(self, path: Path | None = None, made_with: str = "") -> None:
        self._found: dict[Inline, Translated] = {}
        self._path, self._made_with = path, made_with
        self._file: IO[str] | None = None
        if path is not None and path.exists():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError, IndexError):
                self._read(path)  # a line that was cut off ends it

    def _read(self, path: Path) -> None:
        with path.open(encoding="utf-8") as lines:
            if json.loads(next(lines, "{}")).get("made_with") != self._made_with:
                return
            for line in lines:
                content = json.loads(line)
                target = _inline(content["target"])
                problems = tuple(map(str, content["problems"]))
                match = None if content["match"] is None else float(content["match"])
                made = Translated(target, float(content["score"]), bool(content["exact"]), problems, match)
                self._found[_inline(content["source"])] = made

    def __contains__(self, source: Inline) -> bool:
        return source in self._found

    def __getitem__(self, source: Inline) -> Translated:
        return self._found[source]

    def __len__(self) -> int:
        return len(self._found)

    def add(self, sources: Sequence[Inline], found: Sequence[Translated]) -> None:
        """Keep translations, in memory and on disk."""
        pairs = list(zip(sources, found, strict=True))
        self._found.update(pairs)
        if self._file is not None:
            self._file.writelines(map(_line, pairs))
            self._file.flush()
        elif self._path is not None:
            self._file = self._begin(self._path)

    def _begin(self, path: Path) -> IO[str]:
        """A file with all so far, an earlier run's included: it takes the place of that run's, which may be cut off."""
        head = json.dumps({"made_with": self._made_with}) + "\n"
        write_whole(path, "".join((head, *map(_line, self._found.items()))).encode())
        return path.open("a", encoding="utf-8", newline="\n")

    def close(self, *, done: bool) -> None:
        """Close the file, and remove it when the work is done."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if done and self._path is not None:
            self._path.unlink(missing_ok=True)


@contextlib.contextmanager
def finished_in(path: Path | None, made_with: str) -> Iterator[Finished]:
    """Translations that are kept in a file until the work inside is done."""
    kept = Finished(path, made_with)
    done = False
    try:
        yield kept
        done = True
    finally:
        kept.close(done=done)


def _line(pair: tuple[Inline, Translated]) -> str:
    source, found = pair
    content = {
        "source": (source.text, source.codes), "target": (found.target.text, found.target.codes),
        "score": found.score, "exact": found.exact, "problems": found.problems,
        "match": found.match,
    }  # fmt: skip
    return json.dumps(content, ensure_ascii=False) + "\n"


def _inline(content: Any) -> Inline:
    text, codes = content
    return Inline(text, tuple(Code(*code) for code in codes))
