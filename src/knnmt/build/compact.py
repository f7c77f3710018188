"""What was taught becomes a small part, what was removed is erased, and small parts are merged: see `merge.tiers`.

All this is done beside the store, while others read it, teach it and remove from it. Parts that do not change are not
touched. Only when the new parts are sealed does the store change: under the writers' lock, what happened meanwhile goes
into a new journal, and the new manifest takes the old one's place. Lessons stay lessons: they are in a part, but not in
its prototypes, and are still searched exactly, as long as nobody removes them. Those that the model takes in pieces
only stay in the journal alone.
"""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from knnmt import files, host
from knnmt.align import Bitext, Links
from knnmt.build import merge as merging
from knnmt.build import plan as planning
from knnmt.build.align import ALIGNER
from knnmt.build.build import BuildReport, fill, finish, frequent_types, read
from knnmt.build.context import Context, Progress
from knnmt.build.cut import shards
from knnmt.build.merge import Piece
from knnmt.build.read import Corpus
from knnmt.build.seal import sealed_part
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import segments_of_tokens, spread
from knnmt.corpus import Languages, Segment
from knnmt.csr import Int64, offsets_of, runs
from knnmt.errors import StoreError, writing_to
from knnmt.model.represent import StateModel
from knnmt.store.journal import Journal
from knnmt.store.lessons import Lesson, Lessons, Record
from knnmt.store.manifest import FrequentType, Manifest, aligner_name, aligner_of, publish, work_folder
from knnmt.store.part import Part
from knnmt.store.pieces import fits
from knnmt.store.records import to_bytes
from knnmt.store.schema import SHARED
from knnmt.store.store import Store


@dataclass(frozen=True, eq=False)
class _Unit:
    """A part of the store, or the lessons that are to become one, and which segments stay: (segments,) bool."""

    part: Part | None
    lessons: Sequence[Lesson]
    kept: NDArray[np.bool_]
    entries: int  # of what stays

    @property
    def changed(self) -> bool:
        return self.part is None or not self.kept.all()

    def segments(self) -> Iterator[Segment]:
        """Those that stay."""
        if self.part is None:
            return (lesson.segment for lesson in self.lessons)
        return map(self.part.segment, np.flatnonzero(self.kept).tolist())

    def piece(self, vocabulary: int) -> Piece:
        """What is to be merged."""
        return Piece(self.part or merging.of_lessons(self.lessons, vocabulary), self.kept)


@dataclass(frozen=True, eq=False)
class _Change:
    """What a compaction does: neighbouring units that become one part each, the lessons that are sealed, and which of
    the store's segments stay: (segments,) bool."""

    groups: Sequence[Sequence[_Unit]]
    lessons: Sequence[Lesson]
    kept: NDArray[np.bool_]

    def made(self) -> list[tuple[int, Sequence[_Unit]]]:
        """The groups that become new parts, with their places among all."""
        return [(place, group) for place, group in enumerate(self.groups) if len(group) > 1 or group[0].changed]


def compact(
    store: Store,
    model: StateModel,
    *,
    full: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Seal what was taught, erase what was removed, and merge small parts; `full` makes one part of everything.

    Nothing is done where there is nothing to do. An interrupted compaction is resumed if nothing was taught or removed
    since, and begins again if so.
    """
    store.check(model)
    held = Store.open(store.path)
    manifest = held.manifest
    settings = BuildSettings.model_validate(manifest.settings)
    change = _change(held, model, settings, full)
    folder = work_folder(held.path)
    if not change.made() and len(change.groups) == len(held.parts):
        if planning.is_of(folder, manifest.plan):  # a compaction that was interrupted after it was published
            with planning.locked(folder):
                planning.remove(folder)
        return BuildReport({}, manifest.kept, manifest.dropped, manifest.size)
    plan = _plan(held, model, change, full)
    with planning.locked(folder), writing_to(folder, planning.RESUME):
        planning.begin(folder, plan)
        if settings.clean is not None:  # the texts went through all filters when they came in
            settings = settings.model_copy(update={"clean": settings.clean.only_normalizing})
        work = planning.Work(folder, model, settings, workers or host.cores(), progress)
        work.do(work.context("store"), "share", partial(_share, store=held, lessons=change.lessons))
        made = {place: _make(work, held, place, group) for place, group in change.made()}
        with held.writing():
            if held.manifest != manifest:
                raise StoreError(f"{held.path} was compacted or replaced in the meantime: run it again")
            written = _written(work, held, change, made, plan)
            publish(held.path, written, _moved_files(work, written, made))
        planning.remove(folder)
    store.refresh()
    return BuildReport(work.seconds, written.kept, written.dropped, written.size)


# ------------------------------------------------------------------------------------------------------ what to do


def _change(store: Store, model: StateModel, settings: BuildSettings, full: bool) -> _Change:
    """Which parts and lessons become which parts."""
    kept = np.ones(store.sizes["segments"], np.bool_)
    kept[sorted(store.lessons.removed)] = False
    units = []
    for part in store.parts:
        own = kept[part.first_segment :][: part.sizes["segments"]]
        gone = 0 if own.all() else int(np.diff(part["target_offsets"])[~own].sum())
        if own.any():
            units.append(_Unit(part, (), own, part.sizes["entries"] - gone))
    lessons = [lesson for lesson in store.lessons.unfolded if _whole(lesson, model)]
    if lessons:
        entries = sum(lesson.target_ids.size for lesson in lessons)
        units.append(_Unit(None, lessons, np.ones(len(lessons), np.bool_), entries))
    if not units:
        raise StoreError(f"nothing would be left of {store.path}: delete the folder instead")
    sizes = [unit.entries for unit in units]
    groups = [range(len(units))] if full else merging.tiers(sizes, settings.part_tokens)
    return _Change([units[group.start : group.stop] for group in groups], lessons, kept)


def _whole(lesson: Lesson, model: StateModel) -> bool:
    """Whether the model takes a lesson at once: pieces of texts could not be represented again."""
    source, target = lesson.source_ids.tolist(), lesson.target_ids[:-1].tolist()
    return model.special.end not in target and fits(model, source, target) and len(lesson.links) > 0


def _plan(store: Store, model: StateModel, change: _Change, full: bool) -> str:
    """A digest of all that the result depends on."""
    content = [
        [store.manifest.plan, store.manifest.journal, *(part.folder.name for part in store.parts)],
        [model.device.type, model.transformer.precision, full],
        [sorted(store.lessons.removed), sorted(store.lessons.folded)],
        [[*astuple(lesson.segment)] for lesson in change.lessons],
    ]
    return files.digest(json.dumps(content).encode())


# --------------------------------------------------------------------------------------------------- making parts


def _share(context: Context, store: Store, lessons: Sequence[Lesson]) -> None:
    """Write what new parts share with those of the store: the projections of `similar`, and counts by type."""
    first = store.parts[0]
    names = [f"small_{side}_{name}" for side in merging.SIDES for name in ("projection", "middle", "step")]
    context.share(**{name: np.asarray(first[name]) for name in names if name in first})
    content: list[merging.Arrays] = [*store.parts]
    if lessons:
        content.append(merging.of_lessons(lessons, context.vocabulary))
    sizes = [store.sizes.get(name, 0) for name in ("segments", "entries", "tokens", "links")]
    if lessons:
        of_lessons = content[-1]
        more = ("target_offsets", "target_ids", "source_keys", "link_entries")
        sizes = [size + len(of_lessons[name]) for size, name in zip(sizes, more, strict=True)]
        sizes[0] -= 1
    spreads = [_spread(each) for each in content] if "token_segments" in first else []
    context.share(totals=np.array(sizes), type_segments=sum(spreads, np.zeros(context.vocabulary, np.int64)))


def _spread(content: merging.Arrays) -> Int64:
    """In how many segments each type is."""
    if "type_segments" in content:
        return content["type_segments"].astype(np.int64)
    offsets = content["target_offsets"]
    segments = segments_of_tokens(content["link_offsets"], content["link_entries"], offsets)
    return spread(content["type_offsets"], segments, offsets.size - 1)


def _make(work: planning.Work, store: Store, place: int, group: Sequence[_Unit]) -> Path:
    """Make a part of neighbouring units: its folder, sealed."""
    taught = [_taught(unit, store.lessons) for unit in group]
    lessons = frozenset(np.flatnonzero(np.concatenate(taught)).tolist())
    context = work.context(f"part-{place}", lessons=lessons)
    if work.is_done(context, "seal"):
        return context.folder
    pieces = [unit.piece(context.vocabulary) for unit in group]
    if all(piece.has_states for piece in pieces):
        work.do(context, "merge", partial(merging.merge, pieces=pieces))
    else:
        whole = work.context(f"corpus-{place}")
        corpus = _texts(store, group)
        read(work, whole, corpus)
        if json.loads((whole.folder / "report").read_bytes())[0] != sum(map(len, taught)):
            raise StoreError(f"{store.path} could not be compacted: the model does not take all of its segments")
        one = replace(whole, settings=whole.settings.model_copy(update={"part_tokens": 1 << 62}))
        fill(work, context, whole, shards(one)[0], corpus.links is not None)
    work.do(context, "count", _count)
    finish(work, context, {name: size for name, size in store.parts[0].sizes.items() if name in SHARED})
    return context.folder


def _taught(unit: _Unit, lessons: Lessons) -> NDArray[np.bool_]:
    """Which of the segments of a unit that stay are lessons."""
    if unit.part is None:
        return np.ones(len(unit.lessons), np.bool_)
    numbers = unit.part.first_segment + np.flatnonzero(unit.kept)
    return np.isin(numbers, np.array(sorted(lessons.folded), np.int64))


def _count(context: Context) -> None:
    """Write how many tokens each type has in a part, which may not keep that."""
    context.share(**{f"tokens-{context.folder.name}": np.diff(context["type_offsets"])})


def _texts(store: Store, group: Sequence[_Unit]) -> Corpus:
    """The texts of units as a corpus, to be aligned and represented again, where states were not kept."""
    languages = Languages.parse(store.manifest.languages)

    def segments(bad: object) -> Iterator[Segment]:
        for unit in group:
            yield from unit.segments()

    if store.learns:
        return Corpus(segments, languages, aligner=store.aligner())
    parts = [unit.part for unit in group if unit.part is not None]
    if not all("given_links" in part for part in parts):
        raise StoreError(
            f"{store.path} was built from links made elsewhere and does not hold them: build it again (--alignments)"
        )
    return Corpus(segments, languages, links=partial(_given, group))


def _given(group: Sequence[_Unit], bitext: Bitext, numbers: Sequence[int], total: int) -> Links:
    """The links that parts were given, of the segments that stay."""
    counts, links = [], []
    for unit in group:
        assert unit.part is not None  # such a store cannot be taught
        kept = np.flatnonzero(unit.kept)
        counts.append(np.diff(unit.part["given_offsets"])[kept])
        links.append(unit.part["given_links"][runs(unit.part["given_offsets"], kept)])
    count, rows = np.concatenate(counts), np.concatenate(links)
    lengths = np.stack((bitext.source_lengths, bitext.target_lengths), axis=1).repeat(count, axis=0)
    if not ((rows >= 0) & (rows < lengths)).all():
        raise StoreError("the store is corrupt: its links lead out of their segments")
    return Links(rows[:, 0].copy(), rows[:, 1].copy(), offsets_of(count))


# ------------------------------------------------------------------------------------------------- taking its place


def _written(work: planning.Work, store: Store, change: _Change, made: dict[int, Path], plan: str) -> Manifest:
    """The new manifest; its journal is on disk, with all that was taught and removed by now."""
    before = {part.name: part for part in store.manifest.parts}
    folders = {place: group[0].part.folder for place, group in enumerate(change.groups) if group[0].part is not None}
    sealed = [
        sealed_part(made[place]) if place in made else before[folders[place].name]
        for place in range(len(change.groups))
    ]
    aligner = aligner_of(store.path, store.manifest)
    if aligner is not None and store.manifest.aligner is None:  # format 1 has it in the part
        shutil.copyfile(aligner[0], work.folder / "shared" / ALIGNER)
        host.sync(work.folder / "shared" / ALIGNER)
    journal = store.path / f"journal-{plan[:16]}"
    journal.unlink(missing_ok=True)
    record = _moved(store.lessons, change)
    if record != Record():
        Journal(journal).append(to_bytes(record))
    return store.manifest.model_copy(
        update={
            "plan": plan,
            "kept": sum(part.sizes["segments"] for part in sealed),
            "frequent_types": _frequent_types(work, store, change, made),
            "parts": sealed,
            "aligner": None if aligner is None else aligner[1],
            "journal": journal.name,
        }
    )


def _frequent_types(work: planning.Work, store: Store, change: _Change, made: dict[int, Path]) -> list[FrequentType]:
    """The types with the most tokens; those of before where a part does not tell."""
    context, counts = work.context("store"), []
    for place, (unit, *_) in enumerate(change.groups):
        if place in made:
            counts.append(context.common(f"tokens-{made[place].name}"))
        elif unit.part is not None and "type_offsets" in unit.part:
            counts.append(np.diff(unit.part["type_offsets"]))
        else:
            return store.manifest.frequent_types
    return frequent_types(work.model, sum(counts, np.zeros(context.vocabulary, np.int64)))


def _moved_files(work: planning.Work, manifest: Manifest, made: dict[int, Path]) -> dict[str, Path]:
    """What is to be moved into the store, by its names there."""
    moved = {manifest.parts[place].name: folder for place, folder in made.items()}
    aligner = work.folder / "shared" / ALIGNER
    if manifest.aligner is not None and aligner.exists():
        moved[aligner_name(manifest.aligner)] = aligner
    return moved


def _moved(state: Lessons, change: _Change) -> Record:
    """All that was taught and removed by now, by the numbers that segments have in the new parts."""
    kept = change.kept
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    first = int(kept.sum())
    place_of = {lesson.id: now for now, lesson in enumerate(change.lessons, start=first)}
    removed = {int(place[number]) for number in state.removed if kept[number]}
    taught = []
    for lesson in state.taught.values():
        if lesson.folded is not None:
            taught.append(replace(lesson, folded=int(place[lesson.folded])))
        elif lesson.id in place_of and lesson is change.lessons[place_of[lesson.id] - first]:
            taught.append(replace(lesson, folded=place_of[lesson.id]))
        else:  # taught since, or not to be sealed
            taught.append(lesson)
    # those that were removed since, or taught again in another way
    removed |= {place_of[lesson.id] for lesson in change.lessons if state.taught.get(lesson.id) is not lesson}
    return Record(tuple(taught), (), tuple(sorted(removed)))
