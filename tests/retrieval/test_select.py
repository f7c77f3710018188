"""What a sentence sees, where not everything is compared: large types by their clusters, clusters by coarse ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import knnmt.search.search as searches
from knnmt.build import kmeans
from knnmt.csr import offsets_of
from knnmt.retrieval.live import LiveStore
from knnmt.retrieval.session import Retriever
from knnmt.store.store import Store
from knnmt.systems import fast, faster
from knnmt.systems.chosen import Nearest
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Source
from knnmt.systems.view import View

from ..build.examples import written
from ..oracle import datastore
from ..oracle.datastore import Store as Arrays
from .examples import CPU

pytestmark = pytest.mark.usefixtures("way")

WIDTH, SIZES = 3, [0, 400, 37, 0, 1]  # tokens of each type
TOKENS = sum(SIZES)


def clustered(m: int, coarse_from: int, scale: float = 1.0, seed: int = 5) -> Arrays:
    """A store in which token i of the corpus links to entry i alone, with real clusters; `scale` rounds to a grid."""
    rng = np.random.default_rng(seed)
    states = (np.round(rng.normal(size=(TOKENS, WIDTH)) * 4) / 4 * scale).astype(np.float16)
    targets, ids = rng.normal(size=(TOKENS, WIDTH)).astype(np.float16), rng.integers(0, 9, TOKENS).astype(np.int32)
    made = kmeans.cluster(states, offsets_of(np.array(SIZES)), m, coarse_from=coarse_from)
    keys = states[made.order]
    links = made.order.astype(np.int32)
    ranking = kmeans.rank(targets, ids, made.starts, np.arange(TOKENS + 1), links, None)
    begin, end = made.starts[made.coarse_ranges].T
    members = np.concatenate([np.arange(b, e) for b, e in zip(begin, end, strict=True)] or [np.empty(0, np.int64)])
    return {
        "target_ids": ids,
        "target_offsets": np.arange(TOKENS + 1),
        "target_keys": targets,
        "type_offsets": offsets_of(np.array(SIZES)),
        "link_offsets": np.arange(TOKENS + 1),
        "link_entries": links,
        "source_keys": keys,
        "cluster_offsets": made.offsets,
        "cluster_starts": made.starts,
        "cluster_source": kmeans.centroids(keys, np.arange(TOKENS), made.starts),
        "cluster_target": ranking.centroids,
        "ranking_offsets": ranking.offsets,
        "ranking_entries": ranking.entries,
        "ranking_tokens": ranking.tokens,
        "ranking_distances": ranking.distances,
        "coarse_offsets": made.coarse_offsets,
        "coarse_ranges": made.coarse_ranges,
        "coarse_source": kmeans.centroids(keys, members, offsets_of(end - begin)),
    }


@pytest.fixture
def flat(tmp_path: Path) -> Store:
    return written(clustered(m=10, coarse_from=10**6), tmp_path / "store", vocabulary=9)


@pytest.fixture
def deep(tmp_path: Path) -> Store:
    store = written(clustered(m=4, coarse_from=20), tmp_path / "store", vocabulary=9)
    assert np.diff(store.parts[0]["coarse_offsets"]).tolist() == [0, pytest.approx(10, abs=3), 0, 0, 0]
    return store


def asked(types: list[int], seed: int = 0) -> tuple[Source, NDArray[np.float32]]:
    """Sentences of one token each, and the tokens' states."""
    states = (np.round(np.random.default_rng(seed).normal(size=(len(types), WIDTH)) * 4) / 4).astype(np.float32)
    ids = torch.tensor(types)[:, None]
    return Source(ids, torch.ones_like(ids, dtype=torch.bool), torch.from_numpy(states)[:, None]), states


def view_of(store: Store, left_out: Sequence[int] = ()) -> View:
    return LiveStore(store, CPU, left_out).view


def entries_of(lookup: Candidates) -> torch.Tensor:
    assert isinstance(lookup, Nearest)
    return lookup.entries


def listed(rows: torch.Tensor) -> list[list[int]]:
    return [[number for number in row if number >= 0] for row in rows.tolist()]


def nearest(keys: NDArray[Any], state: NDArray[np.float32], rows: NDArray[np.int64], count: int) -> list[int]:
    """The rows of the nearest keys, the lowest of equals."""
    distances = np.square(keys[rows].astype(np.float64) - state).sum(axis=1)
    chosen: list[int] = rows[np.lexsort((rows, distances))[:count]].tolist()
    return chosen


def type_rows(store: Store, offsets: str, kind: int) -> NDArray[np.int64]:
    return np.arange(*store.parts[0][offsets][kind : kind + 2])


TYPES = [1, 2, 1, 1, 4, 0, 1, 2, 1]


@pytest.mark.parametrize("c", [1, 5, 60, 1000])
@pytest.mark.parametrize("large", [30, 30_000])
def test_a_large_type_searched_through_all_clusters_finds_what_brute_force_finds(
    flat: Store, monkeypatch: pytest.MonkeyPatch, c: int, large: int
) -> None:
    monkeypatch.setattr(fast, "LARGE_TYPE", large)
    source, states = asked(TYPES)
    found = listed(fast.near_entries(view_of(flat), source, c, nprobe=10**6))
    keys, entries = flat.parts[0]["source_keys"], flat.parts[0]["link_entries"]
    for kind, state, seen in zip(TYPES, states, found, strict=True):
        wanted = nearest(keys, state, type_rows(flat, "type_offsets", kind), c)
        assert seen == sorted(entries[wanted].tolist())


@pytest.mark.parametrize("nprobe", [1, 3])
def test_fewer_clusters_of_a_large_type_give_the_nearest_of_those(
    flat: Store, monkeypatch: pytest.MonkeyPatch, nprobe: int
) -> None:
    monkeypatch.setattr(fast, "LARGE_TYPE", 30)
    source, states = asked(TYPES)
    part = flat.parts[0]
    for c in (5, 1000):
        found = listed(fast.near_entries(view_of(flat), source, c, nprobe))
        for kind, state, seen in zip(TYPES, states, found, strict=True):
            rows = type_rows(flat, "type_offsets", kind)
            if len(rows) >= 30:
                probed = nearest(part["cluster_source"], state, type_rows(flat, "cluster_offsets", kind), nprobe)
                rows = np.concatenate([np.arange(*part["cluster_starts"][n : n + 2]) for n in sorted(probed)])
                assert len(rows) < SIZES[kind]
            assert seen == sorted(part["link_entries"][nearest(part["source_keys"], state, rows, c)].tolist())


@pytest.mark.parametrize("probe", [10**6, 8, 1])
def test_two_levels_of_clusters_find_the_nearest_in_the_coarse_ones_they_look_into(
    deep: Store, monkeypatch: pytest.MonkeyPatch, probe: int
) -> None:
    monkeypatch.setattr(faster, "COARSE_PROBE", probe)
    monkeypatch.setattr(faster, "COARSE_REACH", np.inf)
    types = [1] * 60 + TYPES
    source, states = asked(types, seed=1)
    part = deep.parts[0]
    found = listed(faster.near_clusters(view_of(deep), source, "ranking"))
    missed = 0
    for kind, state, seen in zip(types, states, found, strict=True):
        every = type_rows(deep, "cluster_offsets", kind)
        best = nearest(part["cluster_source"], state, every, 1)
        coarse = nearest(part["coarse_source"], state, type_rows(deep, "coarse_offsets", kind), probe)
        inside = [np.arange(*part["coarse_ranges"][number]) for number in coarse]
        assert seen == nearest(part["cluster_source"], state, np.concatenate(inside) if inside else every, 1)
        missed += seen != best
    assert missed == 0 if probe > 8 else missed < (60 if probe == 1 else 6)
    assert probe > 1 or missed > 0  # or the coarse level was not used at all


def test_all_systems_by_clusters_choose_the_same_of_two_levels(deep: Store) -> None:
    source, _ = asked([1] * 20 + TYPES, seed=2)
    view = view_of(deep)
    assert torch.equal(faster.near_clusters(view, source, "ranking"), faster.near_clusters(view, source, "link"))


@pytest.mark.parametrize("reach", [1.0, 2.0])  # of the nearest one alone, or of others too
def test_a_coarse_cluster_that_was_emptied_gives_way(
    deep: Store, monkeypatch: pytest.MonkeyPatch, reach: float
) -> None:
    monkeypatch.setattr(faster, "COARSE_REACH", reach)
    part = deep.parts[0]
    source, states = asked([1] * 40, seed=3)
    number = nearest(part["coarse_source"], states[0], type_rows(deep, "coarse_offsets", 1), 1)[0]
    gone = np.arange(*part["coarse_ranges"][number])
    starts = part["cluster_starts"]
    left_out = part["link_entries"][starts[gone[0]] : starts[gone[-1] + 1]].tolist()  # each is a segment of its own
    lists: tuple[faster.Lists, ...] = ("link", "ranking")
    for which in lists:
        found = listed(faster.near_clusters(view_of(deep, left_out), source, which))
        assert all(len(seen) == 1 for seen in found)
        assert not {seen[0] for seen in found} & set(gone.tolist())


def test_what_a_sentence_sees_is_the_union_over_its_tokens_each_once(flat: Store) -> None:
    one, _ = asked([1, 2, 1, 4], seed=4)
    together = Source(one.ids.T, one.mask.T, one.states.transpose(0, 1))
    view, chosen = view_of(flat), RetrievalSettings(c=20, temperature=1.0)
    for select_by in (fast.select, faster.select_members):
        apart = {number for row in listed(entries_of(select_by(view, one, chosen))) for number in row}
        (joined,) = listed(entries_of(select_by(view, together, chosen)))
        assert joined == sorted(apart)


@pytest.mark.parametrize("gathered", [1, 100, 10**6])
def test_ranges_that_are_gathered_give_what_ranges_that_are_read_give(
    flat: Store, monkeypatch: pytest.MonkeyPatch, gathered: int
) -> None:
    """A GPU compares many queries with copies of their rows; a CPU reads each range once for all that ask."""
    monkeypatch.setattr(searches, "GATHERED", gathered)
    view, types = view_of(flat), torch.tensor([2, 1, 2, 1, 1])
    states = torch.from_numpy(asked(types.tolist(), seed=2)[1])
    keys, ranges, search = view.keys("source"), view.ranges("type_offsets", types), searches.Search(CPU)
    read = search.nearest(keys, ranges, states, 7)
    search.device = torch.device("meta")  # any that is no CPU
    for ours, theirs in zip(search.nearest(keys, ranges, states, 7), read, strict=True):
        assert torch.equal(ours, theirs)


def test_a_sentence_may_have_thousands_of_clusters(tmp_path: Path) -> None:
    """Each of its entries is told apart by the cluster that it is taken from."""
    count = 2100
    points = [(float(number % 50), float(number // 50)) for number in range(count)]
    segments = [
        datastore.Segment([number], [number], [(0, 0)], np.array([point]), np.array([point]))
        for number, point in enumerate(points)
    ]
    arrays = datastore.build(segments, {(number, 0): 0 for number in range(count)}, count, 4)
    store = written(arrays, tmp_path / "store", vocabulary=count, k_max=4)
    chosen = RetrievalSettings(system="faster-exact", k=1, temperature=1.0, weight=0.5)
    ids = torch.arange(count)[None]
    look = Retriever(store, CPU, chosen).look(ids, torch.ones_like(ids, dtype=torch.bool), torch.tensor([points]))
    asked = [3, 2047, 2048, 2099]
    found = look.lookup.find(torch.tensor([[points[number] for number in asked]]))
    assert found.entries[0, :, 0].tolist() == asked
