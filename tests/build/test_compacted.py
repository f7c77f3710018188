"""What a compaction keeps: the texts as they are now, the links that were given, and lessons that are heard once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt import Translator
from knnmt.build.build import build
from knnmt.build.compact import compact
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model
from knnmt.retrieval.live import LiveStore
from knnmt.systems.proto import whole_prototypes

from .examples import parallel_text
from .test_prototypes import groups_of

SETTINGS = BuildSettings(clean=None, cluster_size=4, prototype_size=4)
LESSONS = [
    Segment("der Hund sieht das Haus", "a cat sleeps in the garden", "a user", "one"),
    Segment("die Katze schläft", "the small tree", "a user", "two"),
]


@pytest.fixture(scope="module")
def sealed(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    build([parallel_text(folder / "corpus.tsv", 30)], model, folder / "store", "de-en", SETTINGS)
    return folder / "store"


class StoppedError(Exception):
    """Somebody stopped it."""


def stop_at(stage: str) -> Callable[[str, int, int | None], None]:
    def progress(name: str, done: int, total: int | None) -> None:
        if name == stage:
            raise StoppedError

    return progress


@pytest.mark.parametrize("change", [{"source": "der Hund sieht den Baum"}, {"origin": "another user"}])
def test_an_interrupted_compaction_is_not_taken_up_for_other_texts(
    store: Datastore, model: Model, change: dict[str, str]
) -> None:
    lesson = LESSONS[0]
    store.add([lesson], model)
    with pytest.raises(StoppedError):
        compact(store, model, progress=stop_at("similar"))
    later = Segment(**{name: getattr(lesson, name) for name in ("source", "target", "origin", "id")} | change)
    store.remove([lesson.id or ""])
    store.add([later], model)
    store.compact(model)
    for one in (store, Datastore.open(store.path)):
        assert list(one.segments())[-1] == one.find("one") == later


def prototypes_without_lessons(store: Datastore) -> None:
    """The prototypes are those of all links but the lessons', and all of them can be found."""
    part = store.parts[0]
    folded = {lesson.folded for lesson in store.lessons.taught.values() if lesson.folded is not None}
    lessons = folded | store.lessons.removed
    entries = np.arange(part.sizes["entries"])
    lost = set(entries[np.isin(np.searchsorted(part["target_offsets"], entries, "right") - 1, list(lessons))].tolist())
    expected = [entry for members in groups_of(store).values() for entry in members if entry not in lost]
    assert sorted(part["proto_members"].tolist()) == sorted(expected)
    assert lost
    assert part["proto_counts"].sum() == len(expected)
    whole = whole_prototypes(LiveStore(store, torch.device("cpu")).view)
    assert whole is not None
    assert bool(whole.all())


def test_prototypes_are_made_without_the_lessons(store: Datastore, model: Model) -> None:
    store.add(LESSONS, model)
    store.compact(model)
    prototypes_without_lessons(store)
    # neither when a folded lesson is removed, nor when the rest is folded again
    store.remove(["one"])
    prototypes_without_lessons(store)
    store.add([Segment("ein Baum", "a tree", "", "three")], model)
    store.compact(model)
    assert [lesson.folded for lesson in store.lessons.taught.values()] == [30, 31]
    prototypes_without_lessons(store)


def test_a_store_of_nothing_but_lessons_finds_no_prototypes(store: Datastore, model: Model) -> None:
    store.add(LESSONS, model)
    store.remove([segment.id or "" for segment in store.segments()][:30])
    store.compact(model)
    assert len(store) == 2
    whole = whole_prototypes(LiveStore(store, torch.device("cpu")).view)
    assert whole is not None
    assert not bool(whole.any())
    wanted = model.tokenizer.decode(model.tokenizer.encode_target([LESSONS[0].target])[0])
    translator = Translator(model, Datastore.open(store.path), system="proto").using(weight=0.999)
    assert translator.translate([LESSONS[0].source])[0].text == wanted


# ----------------------------------------------------------------------------------------------- links made elsewhere


def links_of(store: Datastore) -> dict[tuple[str, str], list[tuple[int, list[int]]]]:
    """Of each segment, by its texts: the types of its source tokens and the target tokens that each is linked to."""
    part, found = store.parts[0], dict[tuple[str, str], list[tuple[int, list[int]]]]()
    types = np.repeat(np.arange(len(part["type_offsets"]) - 1), np.diff(part["type_offsets"]))
    for kind, entries in zip(types.tolist(), np.split(part["link_entries"], part["link_offsets"])[1:-1], strict=True):
        segments, places = store.where(entries.astype(np.int64))
        segment = store.segment(int(segments[0]))
        found.setdefault((segment.source, segment.target), []).append((kind, places.tolist()))
    return {texts: sorted(links) for texts, links in found.items()}


@pytest.fixture(scope="module")
def given_links(model: Model, sealed: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of links that no aligner makes: each source token with the target token opposite, from the end."""
    folder, sound = tmp_path_factory.mktemp("given"), Datastore.open(sealed)
    pairs = [
        (model.tokenizer.encode_source([each.source])[0], [*model.tokenizer.encode_target([each.target])[0], 0])
        for each in sound.segments()
    ]
    lines = [" ".join(f"{i}-{max(len(t) - 1 - i, 0)}" for i in range(len(s))) for s, t in pairs]
    (folder / "links").write_text("".join(f"{line}\n" for line in lines))
    corpus = parallel_text(folder / "corpus.tsv", 30)
    settings = SETTINGS.model_copy(update={"systems": ("fast", "proto")})
    build([corpus], model, folder / "store", "de-en", settings, alignments=folder / "links")
    return folder / "store"


def test_links_that_were_given_stay(given_links: Path, model: Model, tmp_path: Path) -> None:
    store = Datastore.open(shutil.copytree(given_links, tmp_path / "store"))
    names = [segment.id or "" for segment in store.segments()]
    before = links_of(store)
    gone = [store.find(names[number]) for number in (0, 7, 29)]
    store.remove([names[number] for number in (0, 7, 29)])
    store.compact(model)
    assert len(store) == 27
    assert not store.learns
    kept = {texts: links for texts, links in before.items() if texts not in {(s.source, s.target) for s in gone if s}}
    assert links_of(store) == links_of(Datastore.open(store.path)) == kept
    store.remove([names[3]])  # and once more
    store.compact(model)
    assert links_of(store).items() <= kept.items()
    list(store.verify())


def test_links_that_are_not_there_cannot_stay(given_links: Path, model: Model, tmp_path: Path) -> None:
    """As in stores that were built before they kept them."""
    store = Datastore.open(shutil.copytree(given_links, tmp_path / "store"))
    del store.parts[0].files["given_links.npy"]
    store.remove([next(store.segments()).id or ""])
    with pytest.raises(StoreError, match="was built from links made elsewhere and does not hold them"):
        store.compact(model)


def test_links_that_lead_elsewhere_are_refused(given_links: Path, model: Model, tmp_path: Path) -> None:
    store = Datastore.open(shutil.copytree(given_links, tmp_path / "store"))
    store.parts[0]["given_links"][-1, 0] = 999  # of the copy in memory
    store.remove([next(store.segments()).id or ""])
    with pytest.raises(StoreError, match="its links lead out of their segments"):
        store.compact(model)
