"""`Datastore`: a store on disk, opened. Arrays are mapped into memory, and checked, when they are first asked for.

A store is a sealed part and a journal of what was taught and removed since: the journal is read when the store is
opened, and again by `refresh`. Whoever writes holds the store's lock for as long as that takes.
"""

import contextlib
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from knnmt import host
from knnmt.corpus.segment import Segment
from knnmt.errors import DataError, StoreError
from knnmt.store import exact, format
from knnmt.store.journal import Journal, Repaired, repair
from knnmt.store.lessons import Lesson, LessonPart, Lessons, Record, from_bytes, learn, named, to_bytes

if TYPE_CHECKING:
    from knnmt.align import Aligner
    from knnmt.build.build import BuildReport
    from knnmt.build.settings import BuildSettings
    from knnmt.build.stages import Progress
    from knnmt.model.represent import StateModel

_log = logging.getLogger(__name__)

Side = Literal["source", "target"]
SIDES: tuple[Side, Side] = ("source", "target")
LOCK_SECONDS = 10.0  # that one writer waits for another


class Part:
    """A sealed part of a store: `part["target_ids"]` is an array, opened at the first use."""

    def __init__(self, folder: Path, sealed: format.SealedPart) -> None:
        self.folder, self.sizes, self.files = folder, sealed.sizes, sealed.files
        self._open: dict[str, NDArray[Any]] = {}
        self._made_digests: dict[str, tuple[exact.Digests, exact.Int32]] = {}

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self.files

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._open:
            if name not in self:
                raise StoreError(f"{self.folder} was built without {name}: build the store again for this system")
            self._open[name] = format.open_array(self.folder / f"{name}.npy", name, self.sizes)
        return self._open[name]

    def file(self, name: str) -> Path:
        """A file that is no array, after its checksum: what reads it may trust its content."""
        if name not in self.files:
            raise StoreError(f"{self.folder} was built without {name}")
        format.expect_checksum(self.folder / name, self.files[name])
        return self.folder / name

    def segment(self, number: int) -> Segment:
        """A segment of the part, by its number from 0."""
        offsets = self["text_offsets"][4 * number : 4 * number + 5].tolist()
        text = self["text"]
        try:
            source, target, origin, key = (bytes(text[start:stop]).decode() for start, stop in pairwise(offsets))
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.folder} is damaged: segment {number} is no text") from error
        return Segment(source, target, origin, key or None)

    def saying(self, side: Side, text: str) -> list[int]:
        """The numbers of the segments with this very text as their source or target, white space aside."""
        wanted = exact.one_line(text)
        numbers = exact.candidates(*self._digests(side), text)
        return [number for number in numbers if exact.one_line(getattr(self.segment(number), side)) == wanted]

    def _digests(self, side: Side) -> tuple[exact.Digests, exact.Int32]:
        """Digests of the texts of a side; made here for a part that was sealed without."""
        if f"{side}_digests" in self:
            return self[f"{side}_digests"], self[f"{side}_order"]
        if side not in self._made_digests:
            texts = (getattr(self.segment(number), side) for number in range(self.sizes["segments"]))
            self._made_digests[side] = exact.index(map(exact.digest, texts))
        return self._made_digests[side]

    @cached_property
    def numbers(self) -> dict[str, int]:
        """The segments that came with an id, by it; the last of several with the same."""
        bounds = self["text_offsets"]
        named = np.flatnonzero(bounds[4::4] > bounds[3::4])
        text = self["text"]
        ids = (bytes(text[bounds[4 * n + 3] : bounds[4 * n + 4]]) for n in named.tolist())
        return {key.decode(errors="replace"): number for key, number in zip(ids, named.tolist(), strict=True)}


class Match(NamedTuple):
    """A segment with the very text that was asked for, and its number."""

    number: int
    segment: Segment


@dataclass(frozen=True)
class Added:
    """What became of segments that were taught: their ids, in order; and how many were new, took the place of others,
    or changed nothing."""

    ids: tuple[str, ...] = ()
    new: int = 0
    replaced: int = 0
    unchanged: int = 0

    def __add__(self, other: "Added") -> "Added":
        """What became of these and of others after them."""
        counts = self.new + other.new, self.replaced + other.replaced, self.unchanged + other.unchanged
        return Added(self.ids + other.ids, *counts)


class Datastore:
    """Every token of a parallel corpus, with the state in which a model predicts it.

    >>> store = Datastore.build("train.tmx", langs="de-en", out="store")
    >>> store = Datastore.open("store")
    """

    def __init__(self, path: Path, manifest: format.Manifest) -> None:
        self.path, self._stamp = path, format.stamp(path)
        self._take(manifest)

    def __repr__(self) -> str:
        made = self.manifest
        systems = ", ".join(made.settings.get("systems") or ("all",))
        known = f"{made.languages}, {made.model}, {len(self):,} segments, systems: {systems}"
        return f"{type(self).__name__}({str(self.path)!r}, {known})"

    def _take(self, manifest: format.Manifest) -> None:
        """Be the store that a manifest describes, with what its journal says by now."""
        if len(manifest.parts) != 1:
            raise StoreError(f"{self.path} has {len(manifest.parts)} parts, and this knnmt reads stores of one")
        self.manifest, sealed = manifest, manifest.parts[0]
        self.part = Part(self.path / sealed.name, sealed)
        self.lessons = Lessons(sealed.sizes["segments"], sealed.sizes["entries"])
        self._journal = Journal(format.journal_of(self.path, sealed))
        self._lesson_part: tuple[int, LessonPart | None] = -1, None
        self._by_text: tuple[int, dict[tuple[str, str], list[Match]]] = -1, {}
        self._aligner: Aligner | None = None
        self._take_up()

    @classmethod
    def open(cls, path: str | Path) -> "Datastore":
        """Open a store; only manifest and journal are read, and the size of each file compared with the manifest."""
        path = Path(path)
        store = cls(path, format.read_manifest(path))
        for name, file in store.part.files.items():
            format.expect_size(store.part.folder / name, file.size)
        return store

    @classmethod
    def build(
        cls,
        corpus: str | Path | Sequence[str | Path],
        *,
        out: str | Path,
        langs: str,
        model: "str | Path | StateModel" = "mini-de-en",
        settings: "BuildSettings | None" = None,
        alignments: str | Path | None = None,
        replace: bool = False,
        workers: int | None = None,
        progress: "Progress | None" = None,
    ) -> "Datastore":
        """Make a store from parallel text, or finish what an interrupted build began: see `knnmt.build.build`."""
        from knnmt.build.build import build
        from knnmt.model.checkpoint import load

        paths = [Path(one) for one in ([corpus] if isinstance(corpus, str | Path) else corpus)]
        loaded = load(model, langs=langs) if isinstance(model, str | Path) else model
        build(
            paths, loaded, Path(out), langs, settings, alignments=None if alignments is None else Path(alignments),
            replace=replace, workers=workers, progress=progress,
        )  # fmt: skip
        return cls.open(out)

    def check(self, model: "StateModel") -> None:
        """Refuse a model that this store was not made with: its states would mean nothing here."""
        made = self.manifest
        if model.fingerprint != made.model_fingerprint:
            raise StoreError(f"{self.path} was made with another model ({made.model}): use that, or build it again")
        if model.tokenizer.fingerprint != made.tokenizer_fingerprint:
            here = "-".join(code for code in (model.tokenizer.source, model.tokenizer.target) if code)
            raise StoreError(
                f"{self.path} was made with another tokenizer or other languages ({made.model}, {made.languages}; "
                f"here: {model.name}, {here or 'none named'}): use those, or build it again"
            )

    # ------------------------------------------------------------------------------------------------- texts

    def __len__(self) -> int:
        return self.part.sizes["segments"] - len(self.lessons.removed) + len(self.lessons.unfolded)

    def segment(self, number: int) -> Segment:
        """A segment, by its number from 0; those taught come behind the part's."""
        if 0 <= number < self.part.sizes["segments"]:
            return self.part.segment(number)
        lesson = self.lesson_part.segment_of.get(number) if self.lesson_part is not None else None
        if lesson is None:
            raise IndexError(f"{self.path} has {len(self):,} segments, and none of number {number}")
        return lesson.segment

    def numbered(self) -> Iterator[tuple[int, Segment]]:
        """All segments that were not removed, in order, with their numbers."""
        part, lessons, removed = self.part, self.lessons.unfolded, set(self.lessons.removed)
        numbers = [self.lessons.number(lesson) for lesson in lessons]
        for number in range(part.sizes["segments"]):
            if number not in removed:
                yield number, part.segment(number)
        yield from zip(numbers, (lesson.segment for lesson in lessons), strict=True)

    def segments(self) -> Iterator[Segment]:
        """All that were not removed, in order, each with an id: its own, or `#` and its number."""
        for number, segment in self.numbered():
            yield segment if segment.id else replace(segment, id=f"#{number}")

    def matches(self, source: str) -> list[Match]:
        """The segments with this very source text, the one that counts first: what was taught, the newest first; then
        those whose target stands there most often, of several the last."""
        taught, stored = self._saying("source", source)
        counts = Counter(match.segment.target for match in stored)
        stored.sort(key=lambda match: (-counts[match.segment.target], -match.number))
        return taught[::-1] + stored

    def with_target(self, target: str) -> list[Match]:
        """The segments with this very target text."""
        taught, stored = self._saying("target", target)
        return taught + stored

    def _saying(self, side: Side, text: str) -> tuple[list[Match], list[Match]]:
        """The segments with this text on a side: those taught, the oldest first, and those of the part."""
        taught = self._taught_by_text.get((side, exact.one_line(text)), [])
        gone = {match.number for match in taught} | self.lessons.removed  # a folded lesson has a place in the part
        return taught, [Match(n, self.part.segment(n)) for n in self.part.saying(side, text) if n not in gone]

    @property
    def _taught_by_text(self) -> dict[tuple[str, str], list[Match]]:
        """What was taught, by the text of either side, the oldest first."""
        version, found = self._by_text
        if version != self.lessons.version:
            found, part = defaultdict(list), self.lesson_part
            for number, lesson in part.segment_of.items() if part is not None else ():
                for side in SIDES:
                    found[side, exact.one_line(getattr(lesson.segment, side))].append(Match(number, lesson.segment))
            self._by_text = self.lessons.version, dict(found)
        return self._by_text[1]

    def recent(self, count: int | None = None) -> list[Segment]:
        """The segments that were taught, the newest first."""
        return [lesson.segment for lesson in reversed(list(self.lessons.taught.values()))][:count]

    def find(self, name: str) -> Segment | None:
        """The segment of an id."""
        lesson = self.lessons.taught.get(name)
        if lesson is not None:
            return lesson.segment
        number = self._number(name)
        return None if number is None else replace(self.part.segment(number), id=name)

    def _number(self, name: str) -> int | None:
        """The number of the part's segment that has this id and was not removed."""
        number = self.part.numbers.get(name)
        if number is None and name[:1] == "#" and name[1:].isdecimal() and len(name) < 20:
            number = int(name[1:])
            if number >= self.part.sizes["segments"] or self.part.segment(number).id:
                return None
        return None if number in self.lessons.removed else number

    def where(self, entries: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The segment of each entry, and its place among the segment's target tokens."""
        offsets = self.part["target_offsets"]
        segments = np.searchsorted(offsets, entries, side="right") - 1
        stored = entries < self.part.sizes["entries"]
        places = entries - offsets[np.where(stored, segments, 0)]
        if self.lesson_part is not None and not stored.all():
            taught = self.lesson_part.where(entries)
            segments, places = np.where(stored, segments, taught[0]), np.where(stored, places, taught[1])
        return segments, places

    def target_ids(self, number: int) -> list[int]:
        """The target tokens of a segment, `</s>` at the end."""
        if number < self.part.sizes["segments"]:
            begin, end = self.part["target_offsets"][number : number + 2].tolist()
            ids: list[int] = self.part["target_ids"][begin:end].tolist()
            return ids
        assert self.lesson_part is not None
        taught: list[int] = self.lesson_part.segment_of[number].target_ids.tolist()
        return taught

    @property
    def learns(self) -> bool:
        """Whether segments can be added: a store that was built from links made elsewhere cannot align new ones."""
        return format.ALIGNER in self.part.files

    def aligner(self) -> "Aligner":
        """The alignment model of the corpus: it aligns new segments."""
        from knnmt.align import Aligner

        if self._aligner is None:
            if not self.learns:
                raise StoreError(f"{self.path} was built from links made elsewhere and cannot align what is new")
            self._aligner = Aligner.load(self.part.file(format.ALIGNER))
        return self._aligner

    # --------------------------------------------------------------------------------------- teaching and removing

    @property
    def lesson_part(self) -> LessonPart | None:
        """What was taught, in arrays."""
        version, part = self._lesson_part
        if version != self.lessons.version:
            vocabulary = self.part.sizes["source_vocabulary"]
            part = self.lessons.part(self.part["target_offsets"], vocabulary) if self.lessons.taught else None
            self._lesson_part = self.lessons.version, part
        return part

    def add(
        self, segments: Sequence[Segment], model: "StateModel", *, bad: Callable[[DataError], None] | None = None
    ) -> Added:
        """Teach segments: on disk when this returns, and found by every search from then on.

        A segment with an id takes the place of the one with that id. A segment without takes the place of what was
        taught without an id for the same source text: two translations of a text need two ids. What is taught again as
        it is, and is the newest of its source text, changes nothing. Segments that cannot be learnt are told to `bad`;
        without it, the first of them is raised and nothing is stored.
        """
        self.check(model)
        self.refresh()
        made, given = self.manifest, segments
        # `#17` is a place in the part, which means nothing in the next: what takes that place gets an id of its own
        places = [segment.id if segment.id and segment.id.startswith("#") else None for segment in given]
        segments = [named(segment) for segment in given]
        alone = Counter(segment.id for segment in segments), Counter(segment.source for segment in segments)
        known = [
            alone[0][segment.id] == alone[1][segment.source] == 1
            and (place is None or self._number(place) is None)
            and self.lessons.has_newest(segment)
            for segment, place in zip(segments, places, strict=True)
        ]
        new = [segment for segment, there in zip(segments, known, strict=True) if not there]
        made_of_new = iter(learn(new, model, self.aligner(), made.key, unit=made.metric == "cosine", bad=bad))
        lessons = [None if there else next(made_of_new) for there in known]
        ids = tuple(
            segment.id or ""
            for segment, there, lesson in zip(segments, known, lessons, strict=True)
            if there or lesson is not None
        )
        taught = [(lesson, place) for lesson, place in zip(lessons, places, strict=True) if lesson is not None]
        return self._teach(taught) + Added(unchanged=sum(known)) + Added(ids)

    def _teach(self, lessons: Sequence[tuple[Lesson, str | None]]) -> Added:
        """Write lessons, some of which take the place of the part's segment `#17`, and count what that changed."""
        if not lessons:
            return Added()
        last: dict[str, Lesson] = {}  # by id, the newest last
        dropped: dict[str, None] = {}
        removed: set[int] = set()
        new = unchanged = 0
        with self.writing():
            for lesson, place in lessons:
                older = self.lessons.replaced_by(lesson.segment)
                numbers = {self._number(name) for name in (lesson.id, place) if name and name not in older} - {None}
                before = last.pop(lesson.id, None)
                unchanged += before is not None and before.segment == lesson.segment
                new += before is None and not older and not numbers
                last[lesson.id] = lesson
                dropped |= dict.fromkeys(older)
                removed |= {number for number in numbers if number is not None}
            self._write(Record(tuple(last.values()), tuple(dropped), tuple(sorted(removed))))
        return Added((), new, len(lessons) - new - unchanged, unchanged)

    def remove(self, names: Sequence[str]) -> list[str]:
        """Remove segments by their ids: nothing finds them any more. Gives the ids that were there."""
        with self.writing():
            taught = [name for name in dict.fromkeys(names) if name in self.lessons.taught]
            stored = {name: self._number(name) for name in names if name not in self.lessons.taught}
            there = {name: number for name, number in stored.items() if number is not None}
            if taught or there:
                self._write(Record((), tuple(taught), tuple(sorted(set(there.values())))))
        return [name for name in dict.fromkeys(names) if name in there or name in taught]

    def refresh(self) -> bool:
        """Take up what others have written since this store was opened; says whether there was anything."""
        if format.stamp(self.path) != self._stamp:
            stamp, written = format.stamp(self.path), format.read_manifest(self.path)
            self._stamp = stamp
            if written != self.manifest:
                self._take(written)
                return True
        return self._take_up() > 0

    def compact(
        self, model: "StateModel", *, workers: int | None = None, progress: "Progress | None" = None
    ) -> "BuildReport":
        """Make one part of everything: see `knnmt.build.compact`."""
        from knnmt.build.compact import compact

        return compact(self, model, workers=workers, progress=progress)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, and know all that others wrote before."""
        with _alone(self.path):
            self.refresh()
            yield

    @staticmethod
    def repair(path: str | Path) -> Repaired:
        """Take out what is damaged of a store's journal, and keep all of its records that are sound."""
        path = Path(path)
        sealed = format.read_manifest(path).parts[0]
        with _alone(path):
            return repair(format.journal_of(path, sealed))

    def _write(self, record: Record) -> None:
        self._journal.append(to_bytes(record))
        self.lessons.apply(record)

    def _take_up(self) -> int:
        """Apply the records of the journal that are new, and count them."""
        names = ("width", "source_vocabulary", "target_vocabulary", "segments")
        before = self.lessons.version
        if self._journal.replaced:  # by a repair: what was read of it before counts no more
            self._journal = Journal(self._journal.path)
            self.lessons = Lessons(self.part.sizes["segments"], self.part.sizes["entries"], before + 1)
        for content in self._journal.read():
            self.lessons.apply(from_bytes(content, *(self.part.sizes[name] for name in names)))
        return self.lessons.version - before

    # ------------------------------------------------------------------------------------------------ checks

    def verify(self) -> Iterator[str]:
        """Read everything and compare it with what was sealed; names each file when it is found sound."""
        part = self.part
        for name, file in part.files.items():
            format.expect_checksum(part.folder / name, file)
            if name.endswith(".npy"):
                part[name.removesuffix(".npy")]
            yield name
        if self._journal.end:  # every record was checked when it was read
            yield self._journal.path.name
        strangers = {path.name for path in part.folder.iterdir()} - set(part.files)
        if strangers:
            raise StoreError(f"{part.folder} holds what is not part of the store: {', '.join(sorted(strangers))}")
        for what, sound in _agreements(part):
            if not sound:
                raise StoreError(f"{part.folder} is damaged: {what}")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Be the only one who writes to a store."""
    with host.lock(path / format.LOCK, LOCK_SECONDS) as held:
        if held is None:
            raise StoreError(f"another process is writing to {path}: try again later")
        yield


def _agreements(part: Part) -> Iterator[tuple[str, bool]]:
    """Where two arrays say the same, whether they do."""
    if "cluster_starts" in part and "type_offsets" in part:
        starts = part["cluster_starts"][part["cluster_offsets"]]
        yield "clusters and types do not agree", bool((starts == part["type_offsets"]).all())
    if "ranking_tokens" in part and "target_ids" in part:  # a store that only serves may have no entries' tokens
        tokens = part["target_ids"][part["ranking_entries"]]
        yield "ranked tokens are not those of their entries", bool((tokens == part["ranking_tokens"]).all())
