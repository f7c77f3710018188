"""Merging parts: what becomes one, and that it is what a build of the same segments makes."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from knnmt.build import merge
from knnmt.build.build import build
from knnmt.build.compact import compact
from knnmt.build.context import Context
from knnmt.build.merge import FACTOR, MANY, SMALLEST, tiers
from knnmt.build.settings import BuildSettings
from knnmt.build.similar import segments_of_tokens
from knnmt.corpus import CleanSettings, Segment
from knnmt.model.checkpoint import Model
from knnmt.model.represent import StateModel
from knnmt.store.store import Store

from .examples import parallel_text

PLAIN: dict[str, Any] = {
    "cluster_size": 4, "prototype_size": 4, "k_max": 7, "batch_tokens": 64,
    "clean": CleanSettings(check_language=False),
}  # fmt: skip
SHARED = ("projection", "middle", "step")


pytestmark = pytest.mark.usefixtures("short_runs")


@pytest.fixture(scope="module")
def built(short_runs: None, model: Model, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Store]:
    """Stores of one corpus, each made once, and then copied."""
    folder = tmp_path_factory.mktemp("built")
    corpus = parallel_text(folder / "corpus.tsv", 90)

    def make(to: Path, **changes: Any) -> Store:
        place = folder / str(sorted(changes.items())).translate({ord("/"): "-"})
        if not place.exists():
            build([corpus], model, place, "de-en", BuildSettings.model_validate(PLAIN | changes))
        return Store.open(shutil.copytree(place, to))

    return make


# ---------------------------------------------------------------------------------------------------------------- tiers


def groups(sizes: list[int], most: int = 1 << 40) -> list[list[int]]:
    return [list(group) for group in tiers(sizes, most)]


def test_few_parts_stay_as_they_are() -> None:
    assert groups([5] * (MANY - 1)) == [[n] for n in range(MANY - 1)]
    assert groups([]) == []


def test_many_parts_of_one_tier_become_one() -> None:
    large = 100 * SMALLEST
    assert groups([FACTOR * large, *[large] * MANY]) == [[0], list(range(1, MANY + 1))]


def test_parts_of_very_different_sizes_do_not() -> None:
    large = 100 * SMALLEST
    assert groups([large, FACTOR * large] * MANY) == [[n] for n in range(2 * MANY)]


def test_small_parts_count_as_one_tier() -> None:
    assert groups([1, SMALLEST] * (MANY // 2)) == [list(range(MANY))]


def test_what_was_merged_is_merged_with_others_of_its_size() -> None:
    size = 10 * SMALLEST
    assert groups([MANY * size] * (MANY - 1) + [size] * MANY) == [list(range(2 * MANY - 1))]


def test_no_part_becomes_larger_than_a_build_would_make_it() -> None:
    size = 10 * SMALLEST
    assert groups([size] * MANY, most=MANY * size) == [list(range(MANY))]
    assert groups([size] * MANY, most=MANY * size - 1) == [[n] for n in range(MANY)]


def test_only_neighbours_are_merged() -> None:
    large = 1000 * SMALLEST
    sizes = [5] * (MANY - 1) + [large] + [5] * MANY
    assert groups(sizes) == [*([n] for n in range(MANY)), list(range(MANY, 2 * MANY))]


# ---------------------------------------------------------------------------------------------------------- to the bit


def assert_the_same_part(merged: Store, expected: Store, *, but: set[str] = frozenset()) -> None:  # type: ignore[assignment]
    (one,), (other,) = merged.parts, expected.parts
    assert one.sizes == other.sizes
    assert set(one.files) == set(other.files)
    for name in sorted(one.files):
        if (array := name.removesuffix(".npy")) not in but:
            assert np.array_equal(one[array], other[array]), name


@pytest.mark.parametrize("changes", [{}, {"metric": "cosine"}, {"systems": ("fast", "proto")}], ids=str)
def test_merged_parts_are_what_a_build_of_one_part_makes(
    built: Callable[..., Store], model: Model, tmp_path: Path, changes: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, several = built(tmp_path / "one", **changes), built(tmp_path / "several", part_tokens=120, **changes)
    assert len(several.parts) >= 4
    monkeypatch.setattr("knnmt.build.represent.represent", forbidden)
    compact(several, model, full=True)
    list(several.verify())
    assert list(several.segments()) == list(expected.segments())
    # projections are those of the first part
    small = {f"small_{side}{what}" for side in ("source", "target") for what in ("", *(f"_{each}" for each in SHARED))}
    assert_the_same_part(several, expected, but=small)
    assert several.scale == expected.scale
    assert several.manifest.frequent_types == expected.manifest.frequent_types


def forbidden(*given: Any, **named: Any) -> None:
    raise AssertionError("the model was run")


def test_parts_without_states_are_merged_from_their_texts(
    built: Callable[..., Store], model: Model, tmp_path: Path
) -> None:
    kinds: list[dict[str, Any]] = [{"keys": "pq", "systems": ("knn",)}, {"systems": ("similar",)}]
    for number, changes in enumerate(kinds):
        expected = built(tmp_path / f"one{number}", **changes)
        several = built(tmp_path / f"several{number}", part_tokens=400, **changes)
        before = list(several.segments())
        compact(several, model, full=True)
        list(several.verify())
        assert list(several.segments()) == before
        (merged,), (whole,) = several.parts, expected.parts
        assert set(merged.files) == set(whole.files)
        for name in ("target_ids", "target_offsets"):
            assert np.array_equal(merged[name], whole[name]), name


def test_compaction_merges_many_small_parts(
    built: Callable[..., Store], model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each time something was taught there is a part more, until there are many."""
    store = built(tmp_path / "store", systems=("fast",))
    large = store.parts[0].folder.name
    monkeypatch.setattr(merge, "SMALLEST", 20)
    counts = []
    for number in range(MANY + 1):
        store.add(
            [Segment("der Hund sieht das Haus", f"the dog sees {'a ' * number}house", "", f"own-{number}")], model
        )
        compact(store, model)
        counts.append(len(store.parts))
        assert store.parts[0].folder.name == large
        assert [lesson.folded for lesson in store.lessons.taught.values()] == [90 + n for n in range(number + 1)]
    assert counts == [*range(2, MANY + 1), 2, 3]
    list(store.verify())


def test_a_part_of_rows_by_cluster_is_merged_in_the_order_of_the_corpus(
    built: Callable[..., Store], model: Model, tmp_path: Path
) -> None:
    """As stores of the first format have them."""
    store = built(tmp_path / "store")
    (part,) = store.parts
    order = part["cluster_members"].astype(np.int64)
    old = {name: np.array(part[name]) for name in ("text", "text_offsets", "target_ids", "target_offsets")}
    old |= {name: np.array(part[name]) for name in merge.STATES}
    links = np.split(old["link_entries"], old["link_offsets"][1:-1])
    old["source_keys"] = part["source_keys"][order]
    old["link_offsets"] = np.cumsum([0, *(len(links[number]) for number in order)])
    old["link_entries"] = np.concatenate([links[number] for number in order])
    found = merged(old, model, tmp_path / "merged")
    segments = segments_of_tokens(found["link_offsets"], found["link_entries"], found["target_offsets"])
    for begin, end in zip(found["type_offsets"][:-1], found["type_offsets"][1:], strict=True):
        assert np.all(np.diff(segments[begin:end]) >= 0)
        rows = {found["source_keys"][row].tobytes() for row in range(begin, end)}
        assert rows == {part["source_keys"][row].tobytes() for row in range(begin, end)}
    for name in ("source_digests", "target_digests", "type_offsets", "target_keys"):
        assert np.array_equal(found[name], part[name]), name


def merged(arrays: dict[str, Any], model: StateModel, folder: Path) -> dict[str, Any]:
    folder.mkdir()
    context = Context(model, BuildSettings(), folder, folder)
    merge.merge(context, [merge.Piece(arrays, np.ones(len(arrays["target_offsets"]) - 1, np.bool_))])
    return {path.stem: np.load(path) for path in folder.glob("*.npy")}
