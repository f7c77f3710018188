"""Clusters of one type in many parts: a search of cells finds what a loop over the parts finds in these cells."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from knnmt.search.rows import FAR
from knnmt.systems import faster, levels
from knnmt.systems.levels import levels_of
from knnmt.systems.view import Arrays, View

from ..build.examples import written
from .examples import CPU
from .test_select import SIZES, TOKENS, asked, clustered, listed

pytestmark = pytest.mark.usefixtures("way")

TYPES = [1, 2, 1, 1, 4, 0, 1, 2, 1] + [1] * 40
FLAT, DEEP, FEW = (4, 10**6), (4, 20), (60, 10**6)  # tokens of a cluster, and clusters from which a part has cells


def parts_of(folder: Path, kinds: Sequence[tuple[int, int]]) -> list[Arrays]:
    """A part of each kind, with states of its own."""
    made = (clustered(m, coarse_from, seed=seed) for seed, (m, coarse_from) in enumerate(kinds))
    return [written(each, folder / f"store-{n}", vocabulary=9).parts[0] for n, each in enumerate(made)]


def view_of(parts: Sequence[Arrays]) -> View:
    return View(parts, CPU, "squared", 1.0)


def by_loop(parts: Sequence[Arrays], kind: int, state: NDArray[np.float32], among: set[int]) -> list[int]:
    """The nearest cluster of a type, part by part, of those with these numbers; the lowest of equals."""
    best, first = (np.inf, -1), 0
    for part in parts:
        for row in range(*part["cluster_offsets"][kind : kind + 2]):
            distance = np.square(part["cluster_source"][row].astype(np.float64) - state).sum()
            if first + row in among and distance < best[0]:
                best = distance, first + row
        first += len(part["cluster_source"])
    return [best[1]] if best[1] >= 0 else []


@pytest.fixture(params=[1, 10**6], ids=["side by side", "apart"])
def beside_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Clusters of rarer types are copied to lie together, or read where they are."""
    monkeypatch.setattr(levels, "BESIDE_FROM", request.param)
    found: int = request.param
    return found


@pytest.mark.usefixtures("beside_from")
@pytest.mark.parametrize("kinds", [(FLAT,) * 4, (FLAT, DEEP, FLAT), (DEEP, FEW), (FEW, FEW), (DEEP,)], ids=str)
@pytest.mark.parametrize(("probe", "reach"), [(10**6, np.inf), (3, np.inf), (8, 2.0)])
def test_clusters_of_many_parts_are_found_as_by_a_loop_over_the_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kinds: tuple[tuple[int, int], ...], probe: int, reach: float
) -> None:
    monkeypatch.setattr(levels, "ACROSS_FROM", 20)
    monkeypatch.setattr(faster, "COARSE_PROBE", probe)
    monkeypatch.setattr(faster, "COARSE_REACH", reach)
    parts = parts_of(tmp_path, kinds)
    view = view_of(parts)
    found = levels_of(view)
    source, states = asked(TYPES, seed=1)
    every = set(range(view.count("clusters")))
    missed = 0
    for kind, state, seen in zip(TYPES, states, listed(faster.near_clusters(view, source, "ranking")), strict=True):
        begin, end = found.offsets[kind : kind + 2].tolist()
        distances = np.square(found.means.blocks[0][slice(begin, end)].double().numpy() - state).sum(axis=1)
        near = np.lexsort((np.arange(end - begin), distances))[:probe]
        cells = begin + near[distances[near] <= reach * distances.min(initial=np.inf)]
        rest = [] if found.beside is None else [found.beside.rest[kind].tolist()]
        spans = [*found.ranges[cells].tolist(), *rest]
        among = {int(found.numbers(torch.tensor(place))) for span in spans for place in range(*span)}
        assert seen == by_loop(parts, kind, state, among if end > begin else every)
        missed += seen != by_loop(parts, kind, state, every)
    assert missed == 0 if probe > 8 else missed < len(TYPES) / 3
    assert bool(found.offsets[2] > found.offsets[1]) == (kinds != (FEW, FEW))  # seven clusters in each: no cells


def test_every_cluster_of_a_type_with_cells_is_in_the_nearest_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "ACROSS_FROM", 20)
    parts = parts_of(tmp_path, (FLAT,) * 4)
    view = view_of(parts)
    found = levels_of(view)
    assert found.beside is not None
    order = found.beside.order
    kept = [part["cluster_offsets"][1:3] for part in parts]
    numbers = [n + first for (begin, end), first in zip(kept, view.starts("clusters"), strict=False)
               for n in range(begin, end)]  # fmt: skip
    assert sorted(order[: len(numbers)].tolist()) == numbers
    means = found.means.blocks[0].values[: int(found.offsets[2])].double()
    rows = torch.cat([torch.from_numpy(part["cluster_source"]) for part in parts]).double()
    for cell, (begin, end) in enumerate(found.ranges[: len(means)].tolist()):
        members = order[begin:end]
        assert members.tolist() == sorted(members.tolist())
        distances = torch.cdist(rows[members], means)
        assert (distances[:, cell] <= distances.amin(dim=1) + 1e-3).all()


def test_clusters_of_rarer_types_are_laid_side_by_side_when_they_are_first_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = parts_of(tmp_path, (FEW,) * 4)
    batches = [asked(types, seed=4)[0] for types in ([2], [1, 2, 2], [0, 3], [4, 1])]
    plain = view_of(parts)
    wanted = [faster.near_clusters(plain, source, "link") for source in batches]
    monkeypatch.setattr(levels, "BESIDE_FROM", 1)
    view, laid = view_of(parts), []
    beside = levels_of(view).beside
    assert beside is not None
    for source, rows in zip(batches, wanted, strict=True):
        assert torch.equal(faster.near_clusters(view, source, "link"), rows)
        laid.append([kind for kind in (1, 2, 4) if beside.laid[kind]])
    assert laid == [[2], [1, 2], [1, 2], [1, 2, 4]]
    begin, end = beside.rest[1].tolist()
    numbers = [number for first, part in zip(view.starts("clusters"), parts, strict=False)
               for number in range(first + part["cluster_offsets"][1], first + part["cluster_offsets"][2])]  # fmt: skip
    assert beside.order[begin:end].tolist() == numbers
    means = np.concatenate([part["cluster_source"] for part in parts])[numbers]
    assert (beside.values[begin:end].numpy() == means).all()


@pytest.mark.usefixtures("beside_from")
def test_a_part_that_is_hidden_as_a_whole_does_not_change_the_cells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(levels, "ACROSS_FROM", 20)
    monkeypatch.setattr(faster, "COARSE_PROBE", 2)
    parts = parts_of(tmp_path, (FLAT, FLAT, FLAT))
    source, _ = asked(TYPES, seed=2)
    hidden = torch.zeros(3 * TOKENS, dtype=torch.bool)
    hidden[2 * TOKENS :] = True
    alone, whole = view_of(parts[:2]), view_of(parts)
    before = faster.near_clusters(whole, source, "link")
    others = whole.hiding(hidden)
    for way in ("ranking", "link"):
        assert torch.equal(faster.near_clusters(alone, source, way), faster.near_clusters(others, source, way))
    assert torch.equal(faster.near_clusters(whole, source, "link"), before)  # and when it is there again


@pytest.mark.parametrize("across_from", [20, 10**6], ids=["in cells", "in none"])
def test_clusters_without_visible_entries_give_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside_from: int, across_from: int
) -> None:
    monkeypatch.setattr(levels, "ACROSS_FROM", across_from)
    monkeypatch.setattr(faster, "ASKED", 7)
    parts = parts_of(tmp_path, (FLAT, FLAT))
    source, states = asked([1] * 20, seed=3)
    plain = view_of(parts)
    gone = faster.near_clusters(plain, source, "ranking").unique()
    begin, size = plain.runs("ranking_offsets", gone[gone >= 0])
    hidden = torch.zeros(2 * TOKENS, dtype=torch.bool)
    for first, count in zip(begin.tolist(), size.tolist(), strict=True):
        hidden[plain["ranking_entries"][torch.arange(first, first + count)]] = True
    view = plain.hiding(hidden)
    found = listed(faster.near_clusters(view, source, "ranking"))
    assert not {number for seen in found for number in seen} & set(gone.tolist())
    if across_from > TOKENS:
        left = set(range(view.count("clusters"))) - set(gone.tolist())
        assert found == [by_loop(parts, 1, state, left) for state in states]
    rows = levels_of(view).rows(view, view.derived("ranking means", lambda: pytest.fail("they were made")))
    assert (rows.blocks[0].norms == FAR).any() == (across_from == 20 or beside_from == 1)
    assert len(SIZES) == len(levels_of(view).offsets) - 1
