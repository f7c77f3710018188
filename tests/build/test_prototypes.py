"""Prototypes of a built store against the links they are made of."""

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from knnmt import csr
from knnmt.align.settings import AlignSettings
from knnmt.build import pq
from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model, load
from knnmt.store import arrays

from .examples import parallel_text


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"))


def built(model: Model, folder: Path, size: int) -> Datastore:
    corpus = parallel_text(folder / "corpus.tsv", 150)
    settings = BuildSettings(prototype_size=size, clean=None, align=AlignSettings(iterations=2))
    return Datastore.build(corpus, model=model, out=folder / "store", langs="de-en", settings=settings)


def decoded(store: Datastore, side: str) -> NDArray[np.float32]:
    middle, step = store.parts[0][f"proto_{side}_steps"]
    means: NDArray[np.float32] = store.parts[0][f"proto_{side}"] * step + middle
    return means


def groups_of(store: Datastore) -> dict[tuple[int, int], dict[int, int]]:
    """The distinct entries of each source type and target token, with the first source row that links to each."""
    part = store.parts[0]
    groups: dict[tuple[int, int], dict[int, int]] = defaultdict(dict)
    for kind in range(len(part["type_offsets"]) - 1):
        for row in range(part["type_offsets"][kind], part["type_offsets"][kind + 1]):
            for entry in part["link_entries"][part["link_offsets"][row] : part["link_offsets"][row + 1]].tolist():
                groups[kind, int(part["target_ids"][entry])].setdefault(entry, row)
    return groups


@pytest.mark.parametrize("size", [1, 4, 1000])
def test_prototypes_stand_for_the_links_of_one_type_and_token(model: Model, tmp_path: Path, size: int) -> None:
    store = built(model, tmp_path, size)
    part, groups = store.parts[0], groups_of(store)
    source, target = decoded(store, "source"), decoded(store, "target")
    keys, source_keys = part["target_keys"].astype(np.float32), part["source_keys"].astype(np.float32)
    kinds = np.repeat(np.arange(len(part["proto_offsets"]) - 1), np.diff(part["proto_offsets"]))
    places: dict[tuple[int, int], list[int]] = defaultdict(list)
    for number, (kind, token) in enumerate(zip(kinds.tolist(), part["proto_tokens"].tolist(), strict=True)):
        places[kind, token].append(number)
    assert set(places) == set(groups)
    for group, numbers in places.items():
        members = groups[group]
        assert part["proto_counts"][numbers].sum() == len(members)
        assert len(numbers) >= min(-(-len(members) // size), len(np.unique(keys[list(members)], axis=0)))
        assert (part["proto_counts"][numbers] <= 2 * size).all()
        assert set(part["proto_entries"][numbers].ravel().tolist()) <= set(members)
        if len(numbers) == 1:
            np.testing.assert_allclose(target[numbers[0]], keys[list(members)].mean(axis=0), atol=0.03)
            np.testing.assert_allclose(source[numbers[0]], source_keys[list(members.values())].mean(axis=0), atol=0.03)
            far = np.square(keys[list(members)] - target[numbers[0]]).sum(axis=1)
            nearest = part["proto_entries"][numbers[0], 0]
            assert far[list(members).index(nearest)] <= far.min() + 0.05
    assert sorted(part["proto_members"].tolist()) == sorted(entry for members in groups.values() for entry in members)
    for side, means in (("source", source), ("target", target)):
        np.testing.assert_allclose(part[f"proto_{side}_norms"], np.square(means).sum(axis=1), rtol=1e-4)


def test_a_store_is_the_same_however_much_is_worked_on_at_a_time(
    model: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("large", "small"):
        (tmp_path / name).mkdir()
    large = built(model, tmp_path / "large", 4)
    monkeypatch.setattr(csr, "BLOCK_SIZE", 1 << 11)
    small = built(model, tmp_path / "small", 4)
    for name in ("proto_members", "proto_entries", "proto_offsets", "proto_source", "proto_target"):
        assert np.array_equal(small.parts[0][name], large.parts[0][name]), name


def test_states_in_bytes_are_off_by_half_a_step_at_most() -> None:
    states = np.random.default_rng(0).normal(size=(3000, 5)).astype(np.float16)
    states[:, 4] = 2.5  # a number that never changes
    whole = np.empty(states.shape, np.int8)
    norms, (middle, step) = pq.in_bytes(states, whole)
    assert (np.abs(whole * step + middle - states) <= step / 2 + 1e-3).all()
    np.testing.assert_allclose(norms, np.square(whole * step + middle).sum(axis=1), rtol=1e-5)


@pytest.mark.parametrize("count", [1, pq.TASK_SIZE, 3 * pq.TASK_SIZE + 7])
def test_states_come_to_the_same_bytes_block_by_block_as_all_at_once(tmp_path: Path, count: int) -> None:
    rng = np.random.default_rng(count)
    states = arrays.create(tmp_path / "states.npy", "float16", (count, 6))
    states[:] = rng.normal(rng.normal(size=6), [0.0, 0.01, 1, 1, 10, 1000], size=(count, 6))
    whole = arrays.create(tmp_path / "whole.npy", "int8", states.shape)
    norms, steps = pq.in_bytes(states, whole)

    low, high = (edge(np.array(states), axis=0).astype(np.float32) for edge in (np.min, np.max))
    middle, step = (low + high) / 2, np.maximum((high - low) / 254, 1e-12)
    at_once = np.rint((states.astype(np.float32) - middle) / step).astype(np.int8)
    assert np.array_equal(steps, [middle, step])
    assert np.array_equal(whole, at_once)
    assert np.array_equal(norms, np.square(at_once * step + middle).sum(axis=1))
