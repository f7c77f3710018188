"""A store of several parts: all that leaves it is numbered as in a store of one part, and it is taught as that is."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model, load
from knnmt.store.describe import describe
from knnmt.store.manifest import MANIFEST, manifest_bytes, read_manifest
from knnmt.store.memories import ROOM, Memories
from knnmt.store.numbering import Numbering
from knnmt.store.schema import sizes_of
from knnmt.store.store import Store
from knnmt.translate import TranslateSettings, Translator

from ..build.examples import parallel_text
from .examples import in_format_1, in_format_2, joined

SETTINGS = BuildSettings(clean=None, cluster_size=4, k_max=None, systems=("fast", "knn"))
CUT = 17  # of 40 segments, those of the first part
NEW = Segment("der Hund sieht das Haus", "a cat sleeps in the garden", "a user", "lesson-1")


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    torch.set_num_threads(1)
    return load(model_folder("marian"), langs="de-en", device="cpu")


@pytest.fixture(scope="module")
def made(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of forty segments, `whole`, and of its beginning and end, `a` and `b`; every third one has an id."""
    folder = tmp_path_factory.mktemp("made")
    corpus = parallel_text(folder / "corpus.tsv", 40)
    lines = [line.rsplit("\t", 1)[0] for line in corpus.read_text().splitlines()]
    lines = [f"{line}\tid-{number}\n" if number % 3 == 0 else f"{line}\n" for number, line in enumerate(lines)]
    lines[CUT + 3] = lines[2]  # a segment that is in both
    corpus.unlink()
    for name, some in {"whole": lines, "a": lines[:CUT], "b": lines[CUT:]}.items():
        (folder / name).mkdir()
        (folder / name / "corpus.tsv").write_text("".join(some))
        build([folder / name / "corpus.tsv"], model, folder / name / "store", "de-en", SETTINGS)
    return folder


def own(made: Path, name: str, folder: Path) -> Path:
    return shutil.copytree(made / name / "store", folder / name)


@pytest.fixture(params=["parts", "memories"])
def several(made: Path, tmp_path: Path, request: pytest.FixtureRequest) -> Store | Memories:
    """The whole in two parts of one store, and in two stores that are opened together."""
    if request.param == "memories":
        return Memories.open([own(made, "a", tmp_path), own(made, "b", tmp_path)])
    return joined(tmp_path / "joined", [made / "a" / "store", made / "b" / "store"])


@pytest.fixture
def whole(made: Path, tmp_path: Path) -> Datastore:
    return Datastore.open(own(made, "whole", tmp_path))


def bare(segment: Segment) -> Segment:
    """Without the place it was read from, which is another where the corpus is cut."""
    return replace(segment, origin="")


def test_segments_and_entries_have_the_numbers_of_one_part(several: Store | Memories, whole: Datastore) -> None:
    assert [(part.first_segment, part.first_entry) for part in several.parts] == [
        (0, 0), (CUT, int(whole.parts[0]["target_offsets"][CUT])),
    ]  # fmt: skip
    assert len(several) == len(whole) == 40
    names = ("segments", "entries", "width", "source_vocabulary", "target_vocabulary")
    assert [several.sizes[name] for name in names] == [whole.sizes[name] for name in names]
    assert [(n, bare(one)) for n, one in several.numbered()] == [(n, bare(one)) for n, one in whole.numbered()]
    assert list(map(bare, several.segments())) == list(map(bare, whole.segments()))
    entries = np.random.default_rng(0).permutation(whole.sizes["entries"]).reshape(-1, 1)
    for found, expected in zip(several.where(entries), whole.where(entries), strict=True):
        np.testing.assert_array_equal(found, expected)
    for number in range(40):
        assert several.target_ids(number) == whole.target_ids(number)
        assert bare(several.segment(number)) == bare(whole.segment(number))
        assert bare(several.find(f"#{number}") or NEW) == bare(whole.find(f"#{number}") or NEW)
        assert bare(several.find(f"id-{number}") or NEW) == bare(whole.find(f"id-{number}") or NEW)
    for number in (-1, 40, 10**9):
        with pytest.raises(IndexError):
            several.segment(number)
    assert several.find("#40") is several.find("#0") is None
    assert several.where(np.array([-1, 10**6]))[0].tolist() == [-1, -1]


def test_texts_are_found_in_all_parts(several: Store | Memories, whole: Datastore) -> None:
    twice = whole.segment(2)
    assert [match.number for match in several.matches(twice.source)][:2] == [CUT + 3, 2]
    for segment in whole.segments():
        for text, method in ((segment.source, "matches"), (segment.target, "with_target")):
            found, expected = (
                [(number, bare(one)) for number, one in getattr(store, method)(text)] for store in (several, whole)
            )
            assert found == expected


def taught(store: Numbering) -> list[tuple[Segment, bool]]:
    """Segments, and whether they are a part's."""
    count = store.sizes["segments"]
    return [(bare(segment), number < count) for number, segment in store.numbered()]


def test_it_is_taught_and_forgets_as_one_part_does(several: Store | Memories, whole: Datastore, model: Model) -> None:
    for store in (several, whole):
        older = store.version
        assert store.add([NEW, Segment("die Katze schläft", "the small tree")], model).new == 2
        assert store.add([Segment("das Haus", "the garden", "", f"#{CUT + 2}")], model).replaced == 1
        assert store.remove([f"#{CUT + 5}", "id-18", "lesson-2", "nobody"]) == [f"#{CUT + 5}", "id-18"]
        assert store.removed == {18, CUT + 2, CUT + 5}
        assert store.version > older
        assert store.matches(NEW.source)[0].segment == NEW
        assert store.with_target("the small tree")[0].segment.source == "die Katze schläft"
        assert store.find("lesson-1") == NEW
        assert store.find("id-18") is None
    assert taught(several) == taught(whole)
    assert several.recent(2) == whole.recent(2)
    ours, theirs = several.lesson_part, whole.lesson_part
    assert ours is not None
    assert theirs is not None
    for name in theirs:
        if name not in ("link_offsets", "link_entries", "source_keys", "source_norms", "type_offsets"):
            np.testing.assert_array_equal(ours[name], theirs[name])  # aligned by another corpus
    by_lesson = np.split(ours.entries, np.flatnonzero(np.diff(ours["entry_lessons"])) + 1)
    for number, entries in zip(ours.numbers, by_lesson, strict=True):
        segments, places = several.where(entries)
        assert set(segments) == {number}
        assert places.tolist() == list(range(len(entries)))
        assert len(several.target_ids(int(number))) == len(entries)


def test_whoever_opens_it_again_knows_what_it_was_taught(made: Path, tmp_path: Path, model: Model) -> None:
    store = joined(tmp_path / "joined", [made / "a" / "store", made / "b" / "store"])
    store.add([NEW], model)
    store.remove([f"#{CUT + 2}"])
    again = Datastore.open(store.path)
    assert list(again.segments()) == list(store.segments())
    assert again.removed == {CUT + 2}
    assert len(list(again.verify())) == len(again.files) + 1
    found = describe(again)
    assert found.counts["parts"] == 2
    assert found.counts["segments"] == 40
    assert sum(found.frequencies.values()) > 0


def test_verification_reads_all_parts(made: Path, tmp_path: Path) -> None:
    store = joined(tmp_path / "joined", [made / "a" / "store", made / "b" / "store"])
    path = store.parts[1].folder / "target_ids.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=f"{path} is corrupt"):
        list(store.verify())
    path.unlink()
    with pytest.raises(StoreError, match=f"{path} is missing"):
        Datastore.open(store.path)


def test_sizes_are_those_of_the_shapes(whole: Datastore) -> None:
    (part,) = whole.parts
    known = {name: part.sizes[name] for name in ("width", "source_vocabulary", "target_vocabulary")}
    found = sizes_of(part.folder, known)
    assert {name: part.sizes[name] for name in found} == found
    assert {"bytes", "segments", "entries", "tokens", "links"} <= set(found)
    with pytest.raises(ValueError, match="has shape"):
        sizes_of(part.folder, known | {"segments": 3})


# ------------------------------------------------------------------------------------------------------ older formats


def test_a_store_of_the_first_format_opens_and_is_taught(whole: Datastore, model: Model) -> None:
    in_format_1(whole.path)
    before = (whole.path / MANIFEST).read_bytes()
    assert json.loads(before)["knnmt"]["format"] == 1
    assert "aligner.safetensors" in json.loads(before)["knnmt"]["parts"][0]["files"]
    old = Datastore.open(whole.path)
    assert list(old.segments()) == list(whole.segments())
    assert old.learns
    old.add([NEW], model)
    assert (old.path / old.parts[0].folder.name.replace("part-", "journal-")).exists()
    assert (old.path / MANIFEST).read_bytes() == before
    again = Datastore.open(whole.path)
    assert again.find("lesson-1") == NEW
    assert len(list(again.verify())) == len(old.files) + 1


def test_compaction_writes_the_next_format(whole: Datastore, model: Model) -> None:
    in_format_1(whole.path)
    old = Datastore.open(whole.path)
    old.add([NEW], model)
    old.compact(model)
    assert json.loads((whole.path / MANIFEST).read_bytes())["knnmt"]["format"] == 3
    new = Datastore.open(whole.path)
    assert new.find("lesson-1") == NEW
    assert new.learns
    assert new.add([Segment("die Katze schläft", "the small tree")], model).new == 1
    assert list(new.verify())


def test_narrow_keys_of_format_2_find_the_same_and_parts_added_to_them_are_alike(
    model: Model, made: Path, tmp_path: Path
) -> None:
    settings = SETTINGS.model_copy(update={"systems": ("similar",)})
    build([made / "whole" / "corpus.tsv"], model, tmp_path / "new", "de-en", settings)
    shutil.copytree(tmp_path / "new", tmp_path / "old")
    in_format_2(tmp_path / "old")
    stores = [Datastore.open(tmp_path / name) for name in ("new", "old")]
    numbers = stores[0].sizes["target_numbers"]
    assert [store.sizes["target_small"] for store in stores] == [numbers // 2, numbers]
    assert stores[1].sizes["target_numbers"] == numbers
    texts = [segment.source for segment in stores[0].segments()][:8]
    options = TranslateSettings(exact=False, max_length=12)
    new, old = (Translator(model, store).translate(texts, options) for store in stores)
    assert [one.text for one in old] == [one.text for one in new]
    assert [one.score for one in old] == pytest.approx([one.score for one in new], abs=1e-5)
    stores[1].add([NEW], model)
    stores[1].compact(model)
    sizes = [part.sizes for part in Datastore.open(tmp_path / "old").parts]
    assert [(one["target_small"], one["target_numbers"]) for one in sizes] == [(numbers, numbers)] * len(sizes)
    assert json.loads((tmp_path / "old" / MANIFEST).read_bytes())["knnmt"]["format"] == 3
    assert Translator(model, Datastore.open(tmp_path / "old")).translate([NEW.source])[0].text == NEW.target


# ------------------------------------------------------------------------------------------------------------- memories


def test_several_memories_have_the_scale_of_their_union(made: Path, whole: Datastore) -> None:
    memories = Memories.open([made / "a" / "store", made / "b" / "store"])
    assert memories.scale == whole.scale == memories.manifest.scale
    assert memories.scale not in {store.scale for store in memories.stores}
    assert Memories.open([made / "a" / "store"]).scale == Store.open(made / "a" / "store").scale


def test_a_segment_says_which_memory_it_is_of(made: Path, tmp_path: Path, model: Model) -> None:
    company, project = own(made, "a", tmp_path), own(made, "b", tmp_path)
    Datastore.open(company).add([NEW], model)
    memories = Memories.open([company, project])
    memories.add([replace(NEW, target="the project's own")], model)
    assert [memories.memory_of(number) for number in (0, CUT - 1, CUT, 39)] == ["a", "a", "b", "b"]
    first, second = memories.matches(NEW.source)
    assert (first.segment.target, memories.memory_of(first.number)) == ("the project's own", "b")
    assert (second.segment, memories.memory_of(second.number)) == (NEW, "a")
    assert (second.number, first.number) == (ROOM, 2 * ROOM)
    assert memories.find("lesson-1") == first.segment
    Datastore.open(company).add([replace(NEW, id="id-18")], model)  # the project has another of this id
    memories.refresh()
    assert memories.find("id-18") == memories.segment(18)
    assert Store.open(company).memory_of(0) == "a"
    with pytest.raises(IndexError):
        memories.memory_of(40)


def test_only_the_last_memory_learns_and_forgets(made: Path, tmp_path: Path, model: Model) -> None:
    company, project = own(made, "a", tmp_path), own(made, "b", tmp_path)
    before = {path.name for path in company.iterdir()}
    memories = Memories.open([company, project])
    memories.add([NEW], model)
    assert memories.remove(["id-0", "#1", "id-18", "lesson-1"]) == ["id-18", "lesson-1"]
    assert {path.name for path in company.iterdir()} == before
    assert Datastore.open(project).removed == {18 - CUT}
    assert len(memories) == 39


def test_what_others_write_to_a_memory_is_taken_up(made: Path, tmp_path: Path, model: Model) -> None:
    company, project = own(made, "a", tmp_path), own(made, "b", tmp_path)
    memories = Memories.open([company, project])
    parts = memories.parts
    assert not memories.refresh()
    other = Datastore.open(company)
    other.add([NEW], model)
    assert memories.refresh()
    assert memories.parts is parts  # nothing has to be moved to a device again
    assert memories.find("lesson-1") == NEW
    other.remove(["#1"])
    other.compact(model)
    assert memories.refresh()
    assert memories.parts is not parts
    assert len(memories) == 40
    assert memories.parts[-1].first_segment == other.sizes["segments"] == CUT
    assert [memories.memory_of(number) for number in (CUT - 1, CUT)] == ["a", "b"]
    segments, _ = memories.where(np.arange(memories.sizes["entries"]))
    assert sorted(set(segments.tolist())) == list(range(40))


def test_memories_of_different_make_are_not_opened_together(made: Path, tmp_path: Path) -> None:
    company, project = own(made, "a", tmp_path), own(made, "b", tmp_path)
    other = {"model_fingerprint": "x", "tokenizer_fingerprint": "x", "key": "output", "metric": "cosine"}
    for field, value in other.items():
        manifest = read_manifest(made / "b" / "store").model_copy(update={field: value})
        (project / MANIFEST).write_bytes(manifest_bytes(manifest))
        with pytest.raises(StoreError, match=f"their {field.removesuffix('_fingerprint')}s differ"):
            Memories.open([company, project])
    with pytest.raises(StoreError, match="the same store is given twice"):
        Memories.open([company, company])


def test_memories_in_folders_of_one_name_are_told_apart(made: Path) -> None:
    memories = Memories.open([made / "a" / "store", made / "b" / "store"])
    assert memories.memory_names == ("a/store", "b/store")
    assert [memories.memory_of(number) for number in (0, 39)] == ["a/store", "b/store"]
