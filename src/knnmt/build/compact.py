"""One part of everything: what was taught is folded into clusters and prototypes, and what was removed is erased.

The store is built again from its own segments, beside itself, while others read it, teach it and remove from it. Only
when the new part is sealed does the store change: under the writers' lock, what happened meanwhile goes into the new
part's journal, and the new manifest takes the old one's place. Lessons stay lessons: they are in the part, but not in
its prototypes, and are still searched exactly, as long as nobody removes them. Those that are too long for the model
stay in the journal alone.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from functools import partial

import numpy as np

from knnmt.align import Bitext, Links
from knnmt.build import stages
from knnmt.build.build import BuildReport, begin, locked, made_in, remove, run_stages
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Languages, Segment
from knnmt.csr import offsets_of, ranges
from knnmt.errors import StoreError
from knnmt.files import digest
from knnmt.host import cores
from knnmt.model.represent import StateModel
from knnmt.store.journal import Journal
from knnmt.store.lessons import Lesson, Lessons, Record
from knnmt.store.manifest import publish, work_folder
from knnmt.store.part import Part
from knnmt.store.pieces import fits
from knnmt.store.records import to_bytes
from knnmt.store.store import Store


def compact(
    store: Store, model: StateModel, *, workers: int | None = None, progress: stages.Progress | None = None
) -> BuildReport:
    """Make one part of a store's part and its lessons; nothing is done where there is nothing new or removed."""
    store.check(model)
    store.refresh()
    (part,) = store.parts
    removed, every = frozenset(store.lessons.removed), list(store.lessons.taught.values())
    lessons = _fitting([lesson for lesson in every if lesson.folded is None], model)
    if not lessons and not removed:
        return BuildReport({}, store.manifest.kept, store.manifest.dropped, store.manifest.size, 0)
    kept = [number for number in range(part.sizes["segments"]) if number not in removed]
    if not kept and not lessons:
        raise StoreError(f"nothing would be left of {store.path}: delete the folder instead")
    if not store.learns and "given_links" not in part:
        raise StoreError(
            f"{store.path} was built from links made elsewhere and does not hold them: build it again (--alignments)"
        )

    def read(bad: object) -> Iterator[Segment]:
        yield from map(part.segment, kept)
        yield from (lesson.segment for lesson in lessons)

    settings = BuildSettings.model_validate(store.manifest.settings)
    if settings.clean is not None:  # the texts went through all filters when they came in
        settings = settings.model_copy(update={"clean": settings.clean.only_normalizing})
    folded = {lesson.folded for lesson in every}
    taught = [now for now, number in enumerate(kept) if number in folded]
    taught += range(len(kept), len(kept) + len(lessons))
    # all that the result depends on
    changes = [
        [store.manifest.plan, part.folder.name, model.device.type, str(model.transformer.dtype)],
        [sorted(removed), taught],
        [[*astuple(lesson.segment)] for lesson in lessons],
    ]
    plan = digest(json.dumps(changes).encode())
    work = work_folder(store.path)
    with locked(work):
        begin(work, plan)
        job = stages.Job(
            read, None if store.learns else partial(_given, part, kept), model,
            Languages.parse(store.manifest.languages), settings,
            work / "part", work / "scratch", workers or cores(), progress, frozenset(taught),
        )  # fmt: skip
        report, manifest = run_stages(job, plan, work)
        if report.kept != len(kept) + len(lessons):
            raise StoreError(f"{store.path} could not be compacted: the model does not take all of its segments")
        manifest = manifest.model_copy(update={"dropped": store.manifest.dropped})
        with store.writing():
            if store.parts[0] is not part:
                raise StoreError(f"{store.path} was replaced while it was being compacted: do it again")
            record = _moved(store.lessons, kept, lessons)
            journal = store.path / manifest.journal
            journal.unlink(missing_ok=True)
            if record != Record():
                Journal(journal).append(to_bytes(record))
            publish(store.path, manifest, made_in(work, manifest))
        remove(work)
    store.refresh()
    report.dropped = manifest.dropped
    return report


def _fitting(lessons: list[Lesson], model: StateModel) -> list[Lesson]:
    """The lessons that the model takes at once: those that it takes in pieces cannot be built into a part."""
    sources = model.tokenizer.encode_source([lesson.segment.source for lesson in lessons])
    targets = model.tokenizer.encode_target([lesson.segment.target for lesson in lessons])
    every = zip(lessons, sources, targets, strict=True)
    return [lesson for lesson, source, target in every if fits(model, source, target)]


def _given(part: Part, kept: list[int], bitext: Bitext, numbers: Sequence[int], total: int) -> Links:
    """The links that a part was given, of the segments that stay."""
    offsets, links, chosen = part["given_offsets"], part["given_links"], np.array(kept)[list(numbers)]
    counts = np.diff(offsets)[chosen]
    rows = links[ranges(offsets[:-1][chosen], counts)]
    lengths = np.stack((bitext.source_lengths, bitext.target_lengths), axis=1).repeat(counts, axis=0)
    if not ((rows >= 0) & (rows < lengths)).all():
        raise StoreError(f"{part.folder} is damaged: its links lead out of their segments")
    return Links(rows[:, 0].copy(), rows[:, 1].copy(), offsets_of(counts))


def _moved(state: Lessons, kept: list[int], folded: list[Lesson]) -> Record:
    """All that was taught and removed by now, for a part of the segments `kept` of the old one and of lessons."""
    place = {number: now for now, number in enumerate(kept)}
    place_of = {lesson.id: now for now, lesson in enumerate(folded, start=len(kept))}
    removed = {place[number] for number in state.removed if number in place}
    taught = []
    for lesson in state.taught.values():
        if lesson.folded is not None:
            taught.append(replace(lesson, folded=place[lesson.folded]))
        elif lesson.id in place_of and lesson is folded[place_of[lesson.id] - len(kept)]:
            taught.append(replace(lesson, folded=place_of[lesson.id]))
        else:  # taught since, or too long for the part
            taught.append(lesson)
    # those that were removed since, or taught again in another way
    removed |= {place_of[lesson.id] for lesson in folded if state.taught.get(lesson.id) is not lesson}
    return Record(tuple(taught), (), tuple(sorted(removed)))
