"""What a compaction keeps: the texts as they are now, the links that were given, and lessons that are heard once."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt import Translator
from knnmt.build import cut, plan
from knnmt.build.build import build
from knnmt.build.compact import compact
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model
from knnmt.retrieval.live import LiveStore
from knnmt.store import arrays
from knnmt.store import manifest as manifests
from knnmt.store.manifest import MANIFEST, manifest_bytes, read_manifest, work_folder
from knnmt.systems.proto import whole_prototypes

from ..store.examples import in_format_1
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


def test_what_an_interrupted_compaction_was_to_erase_the_next_one_erases(
    store: Datastore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was stopped when the new manifest was in its place: there is nothing else left to do."""

    def stop(*given: object) -> None:
        raise StoppedError

    removed = store.segment(3)
    store.remove(["3"])
    monkeypatch.setattr(manifests, "remove_others", stop)  # where a manifest is published
    with pytest.raises(StoppedError):
        store.compact(model)
    assert len(list(store.path.glob("part-*"))) == 2
    again = Datastore.open(store.path)
    assert removed not in list(again.segments())
    assert not again.compact(model).seconds
    assert [path.name for path in store.path.glob("part-*")] == [part.folder.name for part in again.parts]
    assert not list(store.path.glob("journal-*"))
    assert not work_folder(store.path).exists()


def test_what_is_left_of_an_interrupted_removal_of_the_work_folder_goes(
    store: Datastore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(folder: Path) -> None:
        if (folder / "plan").exists():
            (folder / "plan").unlink()
            raise StoppedError

    store.remove(["3"])
    with monkeypatch.context() as patch:
        patch.setattr(plan, "remove", stop)
        with pytest.raises(StoppedError):
            store.compact(model)
    assert len(list(work_folder(store.path).iterdir())) > 3
    store.compact(model)
    assert not work_folder(store.path).exists()


def prototypes_without_lessons(store: Datastore) -> None:
    """The prototypes are those of all links but the lessons'."""
    (part,) = store.parts
    folded = {lesson.folded for lesson in store.lessons.taught.values() if lesson.folded is not None}
    lessons = folded | store.lessons.removed
    entries = np.arange(part.sizes["entries"])
    lost = set(entries[np.isin(np.searchsorted(part["target_offsets"], entries, "right") - 1, list(lessons))].tolist())
    expected = [entry for members in groups_of(store).values() for entry in members if entry not in lost]
    assert sorted(part["proto_members"].tolist()) == sorted(expected)
    assert lost
    assert part["proto_counts"].sum() == len(expected)


def test_prototypes_are_made_without_the_lessons(store: Datastore, model: Model) -> None:
    store.add(LESSONS, model)
    store.compact(model, full=True)
    prototypes_without_lessons(store)
    # neither when a folded lesson is removed, nor when the rest is folded again
    store.remove(["one"])
    prototypes_without_lessons(store)
    store.add([Segment("ein Baum", "a tree", "", "three")], model)
    store.compact(model, full=True)
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


@pytest.fixture
def without_states(given_links: Path, model: Model, tmp_path: Path) -> Path:
    """A store of given links that keeps no keys: its part is made again from texts and links."""
    settings = SETTINGS.model_copy(update={"systems": ("proto",)})
    links = given_links.parent / "links"
    build([given_links.parent / "corpus.tsv"], model, tmp_path / "store", "de-en", settings, alignments=links)
    store = Datastore.open(tmp_path / "store")
    store.remove([next(store.segments()).id or ""])
    return tmp_path / "store"


def test_links_that_were_given_stay_where_states_are_made_again(without_states: Path, model: Model) -> None:
    store = Datastore.open(without_states)
    before = np.array(store.parts[0]["given_links"])
    gone = int(store.parts[0]["given_offsets"][1])
    store.compact(model)
    assert np.array_equal(store.parts[0]["given_links"], before[gone:])
    list(store.verify())


def test_links_that_are_not_there_cannot_stay(without_states: Path, model: Model) -> None:
    """As in stores that were built before they kept them."""
    written = read_manifest(without_states)
    (part,) = written.parts
    files = {name: file for name, file in part.files.items() if not name.startswith("given_")}
    without = written.model_copy(update={"parts": [part.model_copy(update={"files": files})]})
    (without_states / MANIFEST).write_bytes(manifest_bytes(without))
    with pytest.raises(StoreError, match="was built from links made elsewhere and does not hold them"):
        Datastore.open(without_states).compact(model)


def test_links_that_lead_elsewhere_are_refused(without_states: Path, model: Model) -> None:
    (file,) = without_states.glob("part-*/given_links.npy")
    links = np.load(file)
    links[-1, 0] = 999
    arrays.write(file, links)
    with pytest.raises(StoreError, match="its links lead out of their segments"):
        Datastore.open(without_states).compact(model)


# ------------------------------------------------------------------------------------------------ only what changes


@pytest.fixture(scope="module")
def cut_in_parts(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parts")
    settings = SETTINGS.model_copy(update={"batch_tokens": 64, "part_tokens": 100})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "RUN", 1)
        build([parallel_text(folder / "corpus.tsv", 60)], model, folder / "store", "de-en", settings)
    return folder / "store"


@pytest.fixture
def several(cut_in_parts: Path, tmp_path: Path) -> Datastore:
    """A store of several parts."""
    return Datastore.open(shutil.copytree(cut_in_parts, tmp_path / "store"))


def folders(store: Datastore) -> list[str]:
    return [part.folder.name for part in store.parts]


def forbid_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*given: object, **named: object) -> None:
        raise AssertionError("the model was run")

    monkeypatch.setattr("knnmt.build.represent.represent", forbidden)


def test_lessons_become_a_small_part_and_no_other_is_touched(
    several: Datastore, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, count = folders(several), len(several)
    several.add(LESSONS, model)
    forbid_the_model(monkeypatch)
    several.compact(model)
    assert folders(several)[:-1] == before
    assert several.parts[-1].sizes["segments"] == 2
    assert [several.lessons.taught[name].folded for name in ("one", "two")] == [count, count + 1]
    assert list(several.segments())[-2:] == LESSONS
    assert len(several) == count + 2
    list(several.verify())
    for name in ("small_target_projection", "small_source_step"):
        assert np.array_equal(several.parts[-1][name], several.parts[0][name])
    assert not several.compact(model).seconds  # there is nothing to do
    for one in (several, Datastore.open(several.path)):
        assert one.find("two") == LESSONS[1]


def test_a_removal_rewrites_only_its_part(several: Datastore, model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    before, segments = folders(several), list(several.segments())
    part, last = several.parts[1], several.parts[-1]
    gone = segments[part.first_segment + 2]
    everything = [segment.id or "" for segment in segments[last.first_segment :]]
    several.remove([gone.id or "", *everything])
    kept = list(several.segments())
    forbid_the_model(monkeypatch)
    several.compact(model)
    after = folders(several)
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert after[2:] == before[2:-1]  # and the last part, of which nothing is left, is gone
    assert list(several.segments()) == kept
    assert not several.lessons.removed
    list(several.verify())


def test_what_is_taught_and_removed_meanwhile_stays(several: Datastore, model: Model) -> None:
    several.add(LESSONS, model)
    names = [segment.id or "" for segment in several.segments()]
    several.remove([names[3]])
    other, done = Datastore.open(several.path), list[str]()

    def progress(stage: str, some: int, total: int | None) -> None:
        if not done:
            done.append(stage)
            other.add([Segment("ein Baum", "a tree", "", "late")], model)
            other.remove(["two", names[10]])

    several.compact(model, full=True, progress=progress)
    assert done
    expected = [name for name in names if name not in ("two", names[3], names[10])] + ["late"]
    for store in (several, Datastore.open(several.path)):
        assert [segment.id for segment in store.segments()] == expected
        assert set(store.lessons.taught) == {"one", "late"}
    several.compact(model, full=True)
    assert [segment.id for segment in several.segments()] == expected
    assert not several.lessons.removed


def test_nothing_can_be_left(several: Datastore, model: Model) -> None:
    several.remove([segment.id or "" for segment in several.segments()])
    with pytest.raises(StoreError, match="nothing would be left"):
        several.compact(model)


def test_states_of_removed_segments_leave_the_disk(several: Datastore, model: Model) -> None:
    part = several.parts[0]
    state = np.array(part["target_keys"][0]).tobytes()
    several.remove([next(several.segments()).id or ""])
    several.compact(model)
    assert all(state not in path.read_bytes() for path in several.path.rglob("target_keys.npy"))


def test_a_store_of_the_first_format_is_compacted_to_the_second(store: Datastore, model: Model) -> None:
    segments = list(store.segments())
    in_format_1(store.path)
    old = Datastore.open(store.path)
    before = folders(old)
    assert read_manifest(store.path).aligner is None
    old.add(LESSONS, model)
    old.compact(model)
    assert folders(old)[:1] == before
    assert read_manifest(store.path).aligner is not None
    assert list(old.verify())
    old.remove([segments[0].id or ""])
    old.compact(model, full=True)
    again = Datastore.open(store.path)
    assert len(again.parts) == 1
    assert list(again.segments()) == [*segments[1:], *LESSONS]
    again.add([Segment("ein Baum", "a tree", "", "three")], model)  # it can still align
