"""`Store`: a store on disk, opened. It is a list of sealed parts and a journal of what was taught and removed since.

The journal is read when the store is opened, and again by `refresh`. Whoever writes holds the store's lock for as long
as that takes.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from knnmt import host
from knnmt.align.fastalign import Aligner
from knnmt.corpus.segment import Segment
from knnmt.errors import DataError, StoreError
from knnmt.model.represent import StateModel
from knnmt.store.journal import Journal, Repaired, repair
from knnmt.store.learn import learn
from knnmt.store.lessons import Lesson, Lessons, Record, named
from knnmt.store.manifest import LOCK, File, Manifest, aligner_of, expect_checksum, read_manifest, sealed_files, stamp
from knnmt.store.numbering import Numbering
from knnmt.store.part import Part
from knnmt.store.records import from_bytes, to_bytes
from knnmt.store.schema import ARRAYS, expect_size

LOCK_SECONDS = 10.0  # that one writer waits for another


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


class Store(Numbering):
    """Every token of a parallel corpus, with the state in which a model predicts it.

    first: the numbers of its first segment and entry, where it is one of several that are opened together;
    lessons_from: the number of the first segment and entry that is taught, by default that behind the parts;
    called: its name as a memory, by default that of its folder
    """

    def __init__(
        self,
        path: str | Path,
        *,
        first: tuple[int, int] = (0, 0),
        lessons_from: int | None = None,
        called: str | None = None,
    ) -> None:
        self.path, self._first, self._lessons_from, self._called = Path(path), first, lessons_from, called
        while True:
            self._stamp = stamp(self.path)
            self._take(read_manifest(self.path))
            try:
                self._expect_files()
            except StoreError:
                if stamp(self.path) == self._stamp:
                    raise
            else:  # otherwise it was replaced a moment ago, and the files of the manifest that was read are gone
                return

    def __repr__(self) -> str:
        made = self.manifest
        systems = ", ".join(made.settings.get("systems") or ("all",))
        known = f"{made.languages}, {made.model}, {len(self):,} segments, systems: {systems}"
        return f"{type(self).__name__}({str(self.path)!r}, {known})"

    def _take(self, manifest: Manifest) -> None:
        """Be the store that a manifest describes, with what its journal says by now."""
        self.manifest, self.scale, parts = manifest, manifest.scale, []
        segment, entry = self._first
        for sealed in manifest.parts:
            parts.append(Part(self.path / sealed.name, sealed, segment, entry))
            segment, entry = segment + sealed.sizes["segments"], entry + sealed.sizes["entries"]
        if self._lessons_from is not None:
            segment = entry = self._lessons_from
        self._behind = segment, entry
        self._aligner: Aligner | None = None
        self._open_journal(parts)

    def _open_journal(self, parts: Sequence[Part], version: int = 0) -> None:
        """Begin with what was taught and removed, and take up all of it."""
        self.lessons = Lessons(*self._behind, version)
        self._journal = Journal(self.path / self.manifest.journal)
        self._lay_out(str(self.path), parts, [self.lessons])
        self._take_up()

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a store; only manifest and journal are read, and the size of each file compared with the manifest."""
        return cls(path)

    def _expect_files(self) -> None:
        """Refuse a store of whose files one is missing or was cut short."""
        for name, file in self.files.items():
            expect_size(self.path / name, file.size)

    @property
    def files(self) -> dict[str, File]:
        """All files as they were sealed, by their paths in the store's folder."""
        return sealed_files(self.manifest)

    def memory_of(self, number: int) -> str:
        """The name of the store that a segment belongs to: this one."""
        return self.memory_names[0]

    @property
    def stores(self) -> "tuple[Store, ...]":
        """All stores that are opened here: this one."""
        return (self,)

    @property
    def memory_names(self) -> tuple[str, ...]:
        """The names of all stores that are opened here: this one's."""
        return (self._called or self.path.resolve().name,)

    def check(self, model: StateModel) -> None:
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

    @property
    def learns(self) -> bool:
        """Whether segments can be added: a store that was built from links made elsewhere cannot align new ones."""
        return aligner_of(self.path, self.manifest) is not None

    def aligner(self) -> Aligner:
        """The alignment model of the corpus: it aligns new segments."""
        if self._aligner is None:
            found = aligner_of(self.path, self.manifest)
            if found is None:
                raise StoreError(f"{self.path} was built from links made elsewhere and cannot align new segments")
            expect_checksum(*found)
            self._aligner = Aligner.load(found[0])
        return self._aligner

    # --------------------------------------------------------------------------------------- teaching and removing

    def add(
        self, segments: Sequence[Segment], model: StateModel, *, bad: Callable[[DataError], None] | None = None
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
            and (place is None or self.number_of(place) is None)
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
        """Write lessons, some of which take the place of a part's segment `#17`, and count what that changed."""
        if not lessons:
            return Added()
        last: dict[str, Lesson] = {}  # by id, the newest last
        dropped: dict[str, None] = {}
        removed: set[int] = set()
        new = unchanged = 0
        with self.writing():
            for lesson, place in lessons:
                older = self.lessons.replaced_by(lesson.segment)
                numbers = {self.number_of(name) for name in (lesson.id, place) if name and name not in older} - {None}
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
            stored = {name: self.number_of(name) for name in names if name not in self.lessons.taught}
            there = {name: number for name, number in stored.items() if number is not None}
            if taught or there:
                self._write(Record((), tuple(taught), tuple(sorted(set(there.values())))))
        return [name for name in dict.fromkeys(names) if name in there or name in taught]

    def refresh(self) -> bool:
        """Take up what others have written since this store was opened; says whether there was anything."""
        now = stamp(self.path)
        if now != self._stamp:
            written = read_manifest(self.path)
            self._stamp = now
            if written != self.manifest:
                self._take(written)
                return True
        return self._take_up() > 0

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        """Be the only writer, and know all that others wrote before."""
        with _alone(self.path):
            self.refresh()
            yield

    @staticmethod
    def repair(path: str | Path) -> Repaired:
        """Take the corrupt records out of a store's journal, and keep all others."""
        path = Path(path)
        read_manifest(path)  # what is no store is refused, and no lock is left in it
        with _alone(path):
            return repair(path / read_manifest(path).journal)

    def _write(self, record: Record) -> None:
        self._journal.append(to_bytes(record.shifted(-self._first[0])))
        self.lessons.apply(record)

    def _take_up(self) -> int:
        """Apply the records of the journal that are new, and count them."""
        before, sizes = self.lessons.version, self.sizes
        if self._journal.replaced:  # by a repair: what was read of it before counts no more
            self._open_journal(self.parts, before + 1)
        for content in self._journal.read():
            self.lessons.apply(from_bytes(content, sizes, self._place).shifted(self._first[0]))
        return self.lessons.version - before

    def _place(self, number: int) -> tuple[Part, int]:
        """The part that has a segment, and the segment's number in it; `number`: in this store alone, from 0."""
        part = self.part_of(self._first[0] + number)
        assert part is not None
        return part, self._first[0] + number - part.first_segment

    # ------------------------------------------------------------------------------------------------ checks

    def verify(self) -> Iterator[str]:
        """Read everything and compare it with what was sealed; names each file when it is found sound."""
        for name, file in self.files.items():
            expect_checksum(self.path / name, file)
            yield name
        if self._journal.end:  # every record was checked when it was read
            for lesson in self.lessons.taught.values():
                _ = lesson.states.source, lesson.states.target  # which may be in a part
            yield self._journal.path.name
        for part in self.parts:
            for name in part.files:
                if (array := name.removesuffix(".npy")) in ARRAYS:
                    part[array]
            strangers = {path.name for path in part.folder.iterdir()} - set(part.files)
            if strangers:
                raise StoreError(f"{part.folder} has files that do not belong to it: {', '.join(sorted(strangers))}")
            for what, sound in _agreements(part):
                if not sound:
                    raise StoreError(f"{part.folder} is corrupt: {what}")


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Be the only one who writes to a store."""
    with host.lock(path / LOCK, LOCK_SECONDS) as held:
        if held is None:
            raise StoreError(f"another process is writing to {path}: try again later")
        yield


def _agreements(part: Part) -> Iterator[tuple[str, bool]]:
    """Where two arrays say the same, whether they do; those that nobody has declared are not opened."""

    def known(*names: str) -> bool:
        return all(name in part and name in ARRAYS for name in names)

    if known("cluster_starts", "type_offsets"):
        starts = part["cluster_starts"][part["cluster_offsets"]]
        yield "clusters and types do not agree", bool((starts == part["type_offsets"]).all())
    if known("ranking_tokens", "target_ids"):  # a store that only serves may have no entries' tokens
        tokens = part["target_ids"][part["ranking_entries"]]
        yield "ranked tokens are not those of their entries", bool((tokens == part["ranking_tokens"]).all())
