"""Clusters, their centroids and rankings, against slow plain NumPy."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from knnmt.build.kmeans import Clusters, Ranking, centroids, cluster, rank
from knnmt.build.lloyd import Float16
from knnmt.csr import Int64, offsets_of
from knnmt.errors import DataError, UsageError
from knnmt.store import arrays

Drawn = tuple[Float16, Int64, Int64, dict[str, Any]]


def normal(*shape: int, seed: int = 0) -> Float16:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float16)


def grid(seed: int, *shape: int) -> Float16:
    """Small whole numbers: many rows are equal, and many are equally far."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


@st.composite
def groupings(draw: st.DrawFn) -> Drawn:
    """States, offsets and order of some groups, and settings under which everything happens on few rows."""
    offsets = offsets_of(np.array(draw(st.lists(st.integers(0, 40), max_size=8)), np.int64))
    seed = draw(st.integers(0, 2**32))
    states = draw(st.sampled_from([grid, lambda s, *shape: normal(*shape, seed=s)]))(seed, offsets[-1] + 5, 3)
    order = np.random.default_rng(seed).permutation(states.shape[0])[: offsets[-1]]
    m = draw(st.integers(1, 6))
    kinds = {
        "m": st.just(m),
        "cap": st.one_of(st.none(), st.integers(m, 3 * m)),
        "coarse_from": st.sampled_from([2, 4, 1024]),
        "seed": st.integers(-5, 5),
        "memory": st.sampled_from([1, 1 << 10, 1 << 30]),
    }
    return states, offsets, order, {name: draw(kind) for name, kind in kinds.items()}


def members(clusters: Clusters, first: int = 0, last: int | None = None) -> list[list[int]]:
    """Rows of the clusters first..last."""
    bounds = clusters.starts[first : None if last is None else last + 1]
    return [part.tolist() for part in np.split(clusters.order, bounds)[1:-1]]


def group(clusters: Clusters, index: int) -> list[list[int]]:
    return members(clusters, *clusters.offsets[index : index + 2].tolist())


def inertia(states: Float16, parts: list[list[int]]) -> float:
    points = states.astype(np.float64)
    return float(sum(((points[part] - points[part].mean(axis=0)) ** 2).sum() for part in parts))


def lloyd(states: Float16, parts: int, iterations: int, rng: np.random.Generator) -> list[list[int]]:
    points = states.astype(np.float64)
    means = points[rng.choice(len(points), parts, replace=False)]
    for _ in range(iterations + 1):
        labels = ((points[:, None] - means) ** 2).sum(axis=2).argmin(axis=1)
        means = np.stack([points[labels == part].mean(axis=0) for part in range(parts)])
    return [np.flatnonzero(labels == part).tolist() for part in range(parts)]


def same(one: Clusters | Ranking, other: Clusters | Ranking) -> bool:
    pairs = zip(vars(one).values(), vars(other).values(), strict=True)
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in pairs)


@given(groupings())
@settings(max_examples=150, deadline=None)
def test_every_row_of_a_group_is_in_one_of_its_clusters(drawn: Drawn) -> None:
    states, offsets, order, options = drawn
    cap = options["cap"] or 2 * options["m"]
    place = {row: index for index, row in enumerate(order.tolist())}
    done: list[int] = []
    clusters = cluster(states, offsets, order=order, progress=done.append, **options)

    assert all(array.dtype == np.int64 for array in vars(clusters).values())
    assert clusters.starts[0] == clusters.offsets[0] == clusters.coarse_offsets[0] == 0
    assert (np.diff(clusters.coarse_offsets) >= 0).all()
    assert clusters.starts[clusters.offsets].tolist() == offsets.tolist()
    assert sum(done) == order.size
    assert min(done) >= 0
    for index, (begin, end) in enumerate(pairwise(offsets.tolist())):
        parts = group(clusters, index)
        assert sorted(row for part in parts for row in part) == sorted(order[begin:end].tolist())
        assert all(0 < len(part) <= cap for part in parts)
        assert all([place[row] for row in part] == sorted(place[row] for row in part) for part in parts)

        coarse = clusters.coarse_ranges[clusters.coarse_offsets[index] : clusters.coarse_offsets[index + 1]]
        wanted = -((begin - end) // options["m"])
        assert bool(len(coarse)) == (wanted > options["coarse_from"])
        if len(coarse):  # they follow one another, from the group's first cluster to its last
            assert [*coarse[:, 0], clusters.offsets[index + 1]] == [clusters.offsets[index], *coarse[:, 1]]
            assert (coarse[:, 0] < coarse[:, 1]).all()


@given(groupings(), st.integers(0, 7))
@settings(max_examples=100, deadline=None)
def test_a_groups_clusters_do_not_depend_on_other_groups(drawn: Drawn, index: int) -> None:
    states, offsets, order, options = drawn
    index = min(index, offsets.size - 2)
    if index < 0:
        return
    clusters = cluster(states, offsets, order=order, **options)
    alone = np.where(np.arange(offsets.size) > index, offsets[index + 1] - offsets[index], 0)
    its_own = cluster(states, alone, order=order[offsets[index] : offsets[index + 1]], **options)
    assert group(clusters, index) == group(its_own, index)


def test_groups_of_one_size_do_not_keep_each_other_going() -> None:
    """They share a batch. Many rows are equal, so that parts are emptied and refilled in some groups for long."""
    states = normal(12, 7)[np.random.default_rng(0).integers(0, 12, 60 * 40)]
    offsets = 40 * np.arange(61)
    clusters = cluster(states, offsets, 4)
    for index in range(60):
        alone = np.where(np.arange(61) > index, 40, 0)
        its_own = cluster(states, alone, 4, order=np.arange(40 * index, 40 * index + 40))
        assert group(clusters, index) == group(its_own, index)


def test_clusters_are_the_same_whatever_the_workers(tmp_path: Path) -> None:
    sizes = np.random.default_rng(0).integers(0, 60, 300)
    sizes[7] = 3000
    offsets = offsets_of(sizes)
    np.save(tmp_path / "states.npy", normal(offsets[-1], 16))
    states = np.load(tmp_path / "states.npy", mmap_mode="r")
    first, *others = [cluster(states, offsets, 4, coarse_from=100, workers=workers) for workers in (1, 1, 2, 3)]
    assert len(first.coarse_ranges) > 1
    assert all(same(first, other) for other in others)
    assert not same(first, cluster(states, offsets, 4, coarse_from=100, seed=1))


def test_a_worker_computes_in_one_thread_and_leaves_others_theirs() -> None:
    seen = set()

    class Watched(np.ndarray[Any, Any]):
        def take(self, *arguments: Any, **named: Any) -> Any:
            seen.add(torch.get_num_threads())
            return super().take(*arguments, **named)

    threads = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        cluster(normal(50, 4).view(Watched), np.array([0, 50]), 5, workers=2)
        assert seen == {1}
        assert torch.get_num_threads() == 3
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(torch.get_num_threads).result() == 3
    finally:
        torch.set_num_threads(threads)


def test_little_memory_gives_clusters_nearly_as_good() -> None:
    states, offsets = normal(4000, 8), np.array([0, 4000])
    ample, scarce = (cluster(states, offsets, 200, cap=4000, memory=memory) for memory in (1 << 30, 1 << 16))
    assert inertia(states, members(scarce)) < 1.05 * inertia(states, members(ample))


def test_blobs_are_found() -> None:
    """Each of 12 groups is made of two blobs, far apart: whichever rows k-means begins with, it finds them."""
    rng = np.random.default_rng(0)
    blob = np.concatenate([rng.permutation(20) < 10 for _ in range(12)])
    states = (normal(240, 16) + np.where(blob, 20, -20)[:, None]).astype(np.float16)
    clusters = cluster(states, np.arange(0, 241, 20), 10)
    assert np.diff(clusters.starts).tolist() == [10] * 24
    assert all(len(set(blob[part].tolist())) == 1 for part in members(clusters))


@pytest.mark.parametrize(("rows", "m"), [(40, 8), (600, 60), (3000, 1000)])
def test_inertia_is_that_of_plain_k_means(rows: int, m: int) -> None:
    """With 3000 rows for 3 clusters, training sees a sample only."""
    rng, parts, groups = np.random.default_rng(0), -(-rows // m), 8
    states = normal(groups * rows, 8)
    clusters = cluster(states, rows * np.arange(groups + 1), m, cap=rows)
    assert np.diff(clusters.offsets).tolist() == [parts] * groups
    slow = [lloyd(states[at : at + rows], parts, 10, rng) for at in range(0, groups * rows, rows)]
    plain = sum(inertia(states[rows * index :][:rows], found) for index, found in enumerate(slow))
    assert inertia(states, members(clusters)) < 1.03 * plain


def test_a_group_of_m_rows_is_never_read() -> None:
    class Unreadable(np.ndarray[Any, Any]):
        def take(self, *_: Any, **__: Any) -> Any:
            raise AssertionError

    clusters = cluster(normal(12, 4).view(Unreadable), np.array([0, 4, 4, 7, 12]), 5)
    assert clusters.starts.tolist() == [0, 4, 7, 12]
    assert clusters.offsets.tolist() == [0, 1, 1, 2, 3]
    with pytest.raises(AssertionError):
        cluster(normal(12, 4).view(Unreadable), np.array([0, 12]), 5)


def test_an_empty_part_takes_the_row_farthest_from_its_mean() -> None:
    """Of 60 equal rows and two others, k-means begins with equal ones, yet finds all three places."""
    states = np.zeros((62, 4), np.float16)
    states[[20, 40]] = [[9], [-9]]
    clusters = cluster(states, np.array([0, 62]), 21, cap=62)
    assert sorted(members(clusters), key=len)[:2] in ([[20], [40]], [[40], [20]])


def test_equal_rows_are_cut_in_their_order() -> None:
    clusters = cluster(np.ones((1000, 6), np.float16), np.array([0, 1000]), 30)
    assert clusters.order.tolist() == list(range(1000))
    assert set(np.diff(clusters.starts).tolist()) == {29, 30}
    under_the_cap = cluster(np.ones((50, 6), np.float16), np.array([0, 50]), 30)
    assert under_the_cap.starts.tolist() == [0, 50]


def test_two_levels_cover_what_one_does() -> None:
    states, offsets = normal(2500, 8), np.array([0, 100, 2400, 2500])
    clusters = cluster(states, offsets, 5, coarse_from=50)
    assert clusters.coarse_offsets[[0, 1]].tolist() == [0, 0]
    assert clusters.coarse_offsets[2] == clusters.coarse_offsets[3] == 22  # the root of 460
    flat = cluster(states, offsets, 5)
    assert flat.coarse_ranges.shape == (0, 2)
    assert inertia(states, members(clusters)) < 1.1 * inertia(states, members(flat))


def test_wrong_sizes_are_refused() -> None:
    with pytest.raises(UsageError, match="clusters of 4 rows, capped at 3"):
        cluster(normal(5, 2), np.array([0, 5]), 4, cap=3)
    with pytest.raises(DataError, match="offsets do not rise from 0 to the 5 rows"):
        cluster(normal(5, 2), np.array([0, 4]), 4)


def mean_of(keys: Float16, unit: bool) -> NDArray[np.float64]:
    mean: NDArray[np.float64] = keys.astype(np.float64).sum(axis=0) / max(len(keys), 1)
    length = np.linalg.norm(mean)
    return mean / length if unit and length else mean


@given(st.integers(0, 2**32), st.lists(st.integers(0, 9), max_size=12), st.booleans(), st.integers(1, 2))
@settings(max_examples=60, deadline=None)
def test_centroids_are_the_means(seed: int, sizes: list[int], unit: bool, workers: int) -> None:
    starts = offsets_of(np.array(sizes, np.int64))
    states = normal(starts[-1] + 3, 5, seed=seed)
    order = np.random.default_rng(seed).permutation(starts[-1] + 3)[: starts[-1]]
    expected = [mean_of(states[part], unit).astype(np.float16) for part in np.split(order, starts)[1:-1]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knnmt.csr.BLOCK_SIZE", 30)  # of 6 rows: some clusters are larger
        patch.setattr("knnmt.build.kmeans.BATCH_BYTES", 120)
        found = centroids(states, order, starts, unit=unit, workers=workers)
    assert found.dtype == np.float16
    assert found.tolist() == [mean.tolist() for mean in expected]
    if len(sizes) > 2:  # a stretch of the clusters
        assert np.array_equal(centroids(states, order, starts[2:], unit=unit), found[2:])


def test_means_are_written_where_they_are_to_be(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    states, order, starts = rng.normal(size=(500, 7)).astype(np.float16), rng.permutation(500), np.arange(0, 501, 5)
    source, target = (arrays.create(tmp_path / f"{side}.npy", "float16", (100, 7)) for side in ("source", "target"))
    assert centroids(states, order, starts, out=source) is source
    assert np.array_equal(arrays.read(tmp_path / "source.npy"), centroids(states, order, starts))
    links = states, np.arange(500, dtype=np.int32), starts, np.arange(501), order, 3
    assert rank(*links, out=target).centroids is target
    assert np.array_equal(arrays.read(tmp_path / "target.npy"), rank(*links).centroids)


def test_an_overflow_is_refused() -> None:
    states = np.ones((6, 2), np.float16)
    states[4, 1] = np.inf
    with pytest.raises(DataError, match="cluster 2: the mean of its states is not finite"):
        centroids(states, np.arange(6), np.array([0, 2, 4, 6]))


def slow_lists(ranking: Ranking, keys: Float16, linked: list[list[int]], k_max: int | None) -> Iterator[list[int]]:
    """The entries of each cluster by their distance to the centroid, and then by number."""
    for centroid, entries in zip(ranking.centroids.astype(np.float32), linked, strict=True):
        away = {entry: ((keys[entry].astype(np.float32) - centroid) ** 2).sum() for entry in entries}
        yield sorted(away, key=lambda entry: (away[entry], entry))[:k_max]


@given(
    st.integers(0, 2**32),
    st.lists(st.integers(0, 6), max_size=8),
    st.one_of(st.none(), st.integers(1, 5)),
    st.booleans(),
    st.integers(1, 2),
    st.sampled_from([30, 1 << 22]),
)
@settings(max_examples=150, deadline=None)
def test_rankings_are_the_slow_ones(
    seed: int, sizes: list[int], k_max: int | None, unit: bool, workers: int, block: int
) -> None:
    """Keys of 4 powers of two, and few of them: sums are exact, many distances are equal, entries come up again."""
    rng = np.random.default_rng(seed)
    keys = rng.choice([-1, -0.5, 0.5, 1], (12, 2)).astype(np.float16)
    ids = rng.integers(0, 100, 12).astype(np.int32)
    starts = offsets_of(np.array(sizes, np.int64))
    link_offsets = offsets_of(rng.integers(0, 3, starts[-1]))
    entries = rng.integers(0, 12, link_offsets[-1]).astype(np.int32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("knnmt.csr.BLOCK_SIZE", block)
        patch.setattr("knnmt.build.kmeans.BATCH_BYTES", block)
        ranking = rank(keys, ids, starts, link_offsets, entries, k_max, unit=unit, workers=workers)

    linked = [sorted(set(part.tolist())) for part in np.split(entries, link_offsets[starts])[1:-1]]
    means = [mean_of(keys[part], unit).astype(np.float16).tolist() for part in linked]
    assert ranking.centroids.tolist() == means
    lists = list(slow_lists(ranking, keys, linked, k_max))
    assert [part.tolist() for part in np.split(ranking.entries, ranking.offsets)[1:-1]] == lists
    assert ranking.tokens.tolist() == ids[ranking.entries].tolist()
    its_own = np.repeat(ranking.centroids, np.diff(ranking.offsets), axis=0).astype(np.float32)
    assert np.allclose(ranking.distances, ((keys[ranking.entries] - its_own) ** 2).sum(axis=1))
    assert [array.dtype.name for array in vars(ranking).values()] == ["float16", "int64", "int32", "int32", "float32"]


def test_a_ranking_by_hand() -> None:
    """Tokens 0 and 1 share entry 3; tokens 2 and 3 have no links; token 4 has all."""
    keys = np.array([[0], [1], [2], [6], [1]], np.float16)
    links = [[3, 0], [3], [], [], [4, 3, 2, 1, 0]]
    offsets = offsets_of(np.array([len(link) for link in links]))
    flat = np.array([entry for link in links for entry in link], np.int32)
    ids = np.array([10, 11, 12, 13, 14], np.int32)
    ranking = rank(keys, ids, np.array([0, 2, 4, 5]), offsets, flat, 3)
    assert ranking.centroids.tolist() == [[3], [0], [2]]
    assert ranking.offsets.tolist() == [0, 2, 2, 5]
    assert ranking.entries.tolist() == [0, 3, 2, 1, 4]  # 0 and 3 are equally near, and so are 1 and 4
    assert ranking.tokens.tolist() == [10, 13, 12, 11, 14]
    assert ranking.distances.tolist() == [9, 9, 0, 1, 1]
