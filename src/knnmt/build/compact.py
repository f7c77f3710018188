"""What was taught becomes a small part, what was removed is erased, and small parts are merged: see `merge.tiers`.

All this is done beside the store, while others read it, teach it and remove from it. Parts that do not change are not
touched. Only when the new parts are sealed does the store change: under the writers' lock, what happened meanwhile goes
into a new journal, and the new manifest takes the old one's place. Lessons stay lessons: they are in a part, but not in
its prototypes, and are still searched exactly, as long as nobody removes them. The journal keeps their texts, tokens
and links, and their states only where the part does not keep those as they are. Lessons that the model takes in pieces
stay in the journal alone.
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
from knnmt.align.bitext import Bitext, Links
from knnmt.build import merge as merging
from knnmt.build import plan as planning
from knnmt.build.align import ALIGNER
from knnmt.build.build import BuildReport, fill, finish, frequent_types, read
from knnmt.build.context import Context, Progress
from knnmt.build.cut import shards
from knnmt.build.merge import Piece
from knnmt.build.pieces import Here
from knnmt.build.read import Corpus
from knnmt.build.seal import sealed_part
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import projection, segments_of_tokens, share_size, spread
from knnmt.corpus import Languages, Segment
from knnmt.csr import Int64, offsets_of
from knnmt.errors import StoreError, writing_to
from knnmt.model.represent import StateModel
from knnmt.store.journal import Journal
from knnmt.store.lessons import Lesson, Lessons, LessonStates, Record, SealedStates
from knnmt.store.manifest import (
    FORMAT,
    FrequentType,
    Manifest,
    aligner_name,
    aligner_of,
    publish,
    remove_others,
    work_folder,
)
from knnmt.store.part import Part, segment_of
from knnmt.store.pieces import fits
from knnmt.store.records import to_bytes
from knnmt.store.schema import SHARED
from knnmt.store.store import Store


@dataclass(frozen=True, eq=False)
class _Change:
    """What a compaction does: neighbouring parts, and behind them lessons, that become one part each; the lessons that
    are sealed; and which of the store's segments stay: (segments,) bool."""

    groups: Sequence[Sequence[Piece]]
    lessons: Sequence[Lesson]
    kept: NDArray[np.bool_]

    def made(self) -> list[tuple[int, Sequence[Piece]]]:
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
        if planning.is_of(folder, manifest.plan) or planning.left_over(folder):  # interrupted after it was published
            with planning.locked(folder), held.writing():
                remove_others(held.path, held.manifest)
                planning.remove(folder)
        return BuildReport({}, manifest.kept, manifest.dropped, manifest.size)
    plan = _plan(held, model, change, full)
    with planning.locked(folder), writing_to(folder, planning.RESUME):
        planning.begin(folder, plan)
        if settings.clean is not None:  # the texts went through all filters when they came in
            settings = settings.model_copy(update={"clean": settings.clean.only_normalizing})
        work = planning.Work(folder, model, settings, workers or host.cores(), progress)
        work.do(work.context("store"), "share", partial(_share, store=held, change=change))
        made = {place: _make(work, held, place, group) for place, group in change.made()}
        with held.writing():
            if held.manifest != manifest:
                raise StoreError(f"{held.path} was compacted or replaced in the meantime: run the command again")
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
    pieces = [Piece(part, kept[part.first_segment :][: part.sizes["segments"]]) for part in store.parts]
    pieces = [piece for piece in pieces if piece.kept.any()]
    lessons = [lesson for lesson in store.lessons.unfolded if _whole(lesson, model)]
    if lessons:
        arrays = merging.of_lessons(lessons, store.sizes["source_vocabulary"])
        pieces.append(Piece(arrays, np.ones(len(lessons), np.bool_)))
    if not pieces:
        raise StoreError(f"nothing would be left of {store.path}: delete the folder instead")
    sizes = [piece.entries for piece in pieces]
    groups = [range(len(pieces))] if full else merging.tiers(sizes, settings.part_tokens)
    return _Change([pieces[group.start : group.stop] for group in groups], lessons, kept)


def _whole(lesson: Lesson, model: StateModel) -> bool:
    """Whether the model takes a lesson at once: pieces of texts could not be represented again."""
    source, target = lesson.source_ids.tolist(), lesson.target_ids[:-1].tolist()
    return model.special.end not in target and fits(model, source, target) and len(lesson.links) > 0


def _plan(store: Store, model: StateModel, change: _Change, full: bool) -> str:
    """A digest of all that the result depends on."""
    content = [
        FORMAT,
        [store.manifest.plan, store.manifest.journal, *(part.folder.name for part in store.parts)],
        [model.device.type, model.transformer.precision, full],
        [sorted(store.lessons.removed), sorted(store.lessons.folded)],
        [[*astuple(lesson.segment)] for lesson in change.lessons],
    ]
    return files.digest(json.dumps(content).encode())


# --------------------------------------------------------------------------------------------------- making parts


def _share(context: Context, store: Store, change: _Change) -> None:
    """Write what new parts share with those of the store: the projections of `similar`, and counts by type."""
    first = store.parts[0]
    names = [name for side in merging.SIDES for name in projection(side) if name in first]
    context.share(**{name: np.asarray(first[name]) for name in names})
    for side in merging.SIDES if names else ():
        share_size(context, side, first.sizes[f"{side}_small"])
    content: list[merging.Arrays] = [*store.parts]
    totals = [store.sizes.get(name, 0) for name in ("segments", "entries", "tokens", "links")]
    if change.lessons:
        own = change.groups[-1][-1].arrays
        sizes = len(change.lessons), *(len(own[name]) for name in ("target_ids", "source_keys", "link_entries"))
        totals = [total + size for total, size in zip(totals, sizes, strict=True)]
        content.append(own)
    spreads = [_spread(each) for each in content] if "token_segments" in first else []
    context.share(totals=np.array(totals), type_segments=sum(spreads, np.zeros(context.vocabulary, np.int64)))


def _spread(content: merging.Arrays) -> Int64:
    """In how many segments each type is."""
    if "type_segments" in content:
        return content["type_segments"].astype(np.int64)
    offsets = content["target_offsets"]
    segments = segments_of_tokens(content["link_offsets"], content["link_entries"], offsets)
    return spread(content["type_offsets"], segments, offsets.size - 1)


def _make(work: planning.Work, store: Store, place: int, group: Sequence[Piece]) -> Path:
    """Make a part of neighbouring pieces: its folder, sealed."""
    taught = np.concatenate([_taught(piece, store.lessons) for piece in group])
    context = work.context(f"part-{place}", lessons=frozenset(np.flatnonzero(taught).tolist()))
    if work.is_done(context, "seal"):
        return context.folder
    if all(merging.has_states(piece.arrays) for piece in group):
        work.do(context, "merge", partial(merging.merge, pieces=group))
    else:
        whole = work.context(f"corpus-{place}")
        corpus = _texts(store, group)
        read(work, Here(work.model), whole, corpus)
        if json.loads((whole.folder / "report").read_bytes())[0] != taught.size:
            raise StoreError(f"{store.path} could not be compacted: the model does not take all of its segments")
        one = replace(whole, settings=whole.settings.model_copy(update={"part_tokens": 1 << 62}))
        fill(work, context, whole, shards(one)[0], corpus.links is not None)
    work.do(context, "count", _count)
    finish(work, context, {name: size for name, size in store.parts[0].sizes.items() if name in SHARED})
    return context.folder


def _taught(piece: Piece, lessons: Lessons) -> NDArray[np.bool_]:
    """Which of the segments of a piece that stay are lessons."""
    kept = np.flatnonzero(piece.kept)
    if not isinstance(piece.arrays, Part):
        return np.ones(kept.size, np.bool_)
    return np.isin(piece.arrays.first_segment + kept, np.array(sorted(lessons.folded), np.int64))


def _count(context: Context) -> None:
    """Write how many tokens each type has in a part, which may not keep that."""
    context.share(**{f"tokens-{context.folder.name}": np.diff(context["type_offsets"])})


def _texts(store: Store, group: Sequence[Piece]) -> Corpus:
    """The texts of pieces as a corpus, to be aligned and represented again, where states were not kept."""
    languages = Languages.parse(store.manifest.languages)

    def segments(bad: object) -> Iterator[Segment]:
        for piece in group:
            yield from (segment_of(piece.arrays, number) for number in np.flatnonzero(piece.kept).tolist())

    if store.learns:
        return Corpus(segments, languages, aligner=store.aligner())
    if not all("given_links" in piece.arrays for piece in group):
        raise StoreError(
            f"{store.path} was built from links made elsewhere and does not hold them: build it again (--alignments)"
        )
    return Corpus(segments, languages, links=partial(_given, group))


def _given(group: Sequence[Piece], bitext: Bitext, numbers: Sequence[int], total: int) -> Links:
    """The links that parts were given, of the segments that stay."""
    rows, offsets = merging.given_links(group).values()
    lengths = np.stack((bitext.source_lengths, bitext.target_lengths), axis=1).repeat(np.diff(offsets), axis=0)
    if not ((rows >= 0) & (rows < lengths)).all():
        raise StoreError("the store is corrupt: its links lead out of their segments")
    return Links(rows[:, 0].copy(), rows[:, 1].copy(), offsets)


# ------------------------------------------------------------------------------------------------- taking its place


def _written(work: planning.Work, store: Store, change: _Change, made: dict[int, Path], plan: str) -> Manifest:
    """The new manifest; its journal is on disk, with all that was taught and removed by now."""
    before = {part.name: part for part in store.manifest.parts}
    sealed = [
        sealed_part(made[place]) if place in made else before[_part(group).folder.name]
        for place, group in enumerate(change.groups)
    ]
    aligner = aligner_of(store.path, store.manifest)
    if aligner is not None and store.manifest.aligner is None:  # format 1 has it in the part
        shutil.copyfile(aligner[0], work.folder / "shared" / ALIGNER)
        host.sync(work.folder / "shared" / ALIGNER)
    journal = store.path / f"journal-{plan[:16]}"
    journal.unlink(missing_ok=True)
    record = _moved(store.lessons, change, {place: Part(folder, sealed[place]) for place, folder in made.items()})
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
    for place, group in enumerate(change.groups):
        if place in made:
            counts.append(context.common(f"tokens-{made[place].name}"))
        elif "type_offsets" in (part := _part(group)):
            counts.append(np.diff(part["type_offsets"]))
        else:
            return store.manifest.frequent_types
    return frequent_types(work.model, sum(counts, np.zeros(context.vocabulary, np.int64)))


def _part(group: Sequence[Piece]) -> Part:
    """The part that a group is which does not change."""
    (piece,) = group
    assert isinstance(piece.arrays, Part)
    return piece.arrays


def _moved_files(work: planning.Work, manifest: Manifest, made: dict[int, Path]) -> dict[str, Path]:
    """What is to be moved into the store, by its names there."""
    moved = {manifest.parts[place].name: folder for place, folder in made.items()}
    aligner = work.folder / "shared" / ALIGNER
    if manifest.aligner is not None and aligner.exists():
        moved[aligner_name(manifest.aligner)] = aligner
    return moved


def _moved(state: Lessons, change: _Change, made: dict[int, Part]) -> Record:
    """All that was taught and removed by now, by the numbers that segments have in the new parts.

    made: the parts that are new, by their places among all
    """
    kept = change.kept
    place = np.where(kept, np.cumsum(kept) - 1, -1)
    first = int(kept.sum())
    place_of = {lesson.id: now for now, lesson in enumerate(change.lessons, start=first)}
    removed = {int(place[number]) for number in state.removed if kept[number]}
    starts = offsets_of(np.array([sum(int(piece.kept.sum()) for piece in group) for group in change.groups]))

    def sealed(lesson: Lesson, number: int) -> Lesson:
        """A lesson as the segment of this number; its states are left to a new part that keeps them."""
        at = int(np.searchsorted(starts, number, side="right")) - 1
        states: LessonStates | SealedStates = lesson.states
        if at in made and merging.has_states(made[at]):
            states = SealedStates(
                made[at], number - int(starts[at]), lesson.source_ids, lesson.target_ids, lesson.links
            )
        elif at in made:
            states = LessonStates(states.source, states.target)
        return replace(lesson, states=states, folded=number)

    taught = []
    for lesson in state.taught.values():
        if lesson.folded is not None:
            taught.append(sealed(lesson, int(place[lesson.folded])))
        elif lesson.id in place_of and lesson is change.lessons[place_of[lesson.id] - first]:
            taught.append(sealed(lesson, place_of[lesson.id]))
        else:  # taught since, or not to be sealed
            taught.append(lesson)
    # those that were removed since, or taught again in another way
    removed |= {place_of[lesson.id] for lesson in change.lessons if state.taught.get(lesson.id) is not lesson}
    return Record(tuple(taught), (), tuple(sorted(removed)))
