"""The paper's section 3.3 through the real systems: the store of the oracle's example, and the same numbers.

Where the numbers come from, and how the store looks, stands in tests/oracle/test_worked_example.py.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from knnmt.datastore import Datastore
from knnmt.model.transformer import States
from knnmt.retrieval.session import Retriever, SentenceLookup
from knnmt.systems.faster import NearestCluster, near_clusters
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Source

from ..build.examples import written
from ..oracle.test_worked_example import EXAMPLE, SENTENCE, STATES, A, B, D, F, a, b, c, d, e

pytestmark = pytest.mark.usefixtures("way")

Listed = list[tuple[int, int, float]]
CPU = torch.device("cpu")
LN2, LN3 = math.log(2), math.log(3)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    return written(EXAMPLE, tmp_path_factory.mktemp("example") / "store", vocabulary=5, k_max=None)


def look(
    store: Datastore, system: str, sentence: list[int] = SENTENCE, source: Any = STATES, **settings: Any
) -> SentenceLookup:
    plain = {"system": system, "temperature": 1.0, "adapt": "constant"}
    chosen = RetrievalSettings.model_validate(plain | settings)
    ids = torch.tensor([sentence])
    states = torch.from_numpy(np.asarray(source, np.float32))[None]
    return Retriever(store, CPU, chosen).look(ids, torch.ones_like(ids, dtype=torch.bool), states)


def find(looking: SentenceLookup, *state: float) -> tuple[Listed, float]:
    """Entries, tokens and distances, and the smallest distance that was seen."""
    found = looking.lookup.find(torch.tensor([[state]]))
    columns = (column[0, 0].tolist() for column in found[:3])
    return [row for row in zip(*columns, strict=True) if row[0] >= 0], found.nearest.item()


def mixed(looking: SentenceLookup, p_mt: list[float], *state: float) -> list[float]:
    """The distribution over the five target tokens."""
    states, logits = torch.tensor([[state]]), torch.tensor([[p_mt]]).log()
    normaliser = looking.mix(States(states, states), logits, torch.zeros(1, 1))
    p: list[float] = (logits - normaliser[:, :, None]).exp()[0, 0].tolist()
    return p


def p_knn(looking: SentenceLookup, *state: float) -> list[float]:
    neighbours = looking.lookup.neighbours(torch.tensor([[state]]))
    p = torch.zeros(5).scatter(0, neighbours.tokens[0, 0], neighbours.log_p[0, 0].exp())
    return [float(value) for value in p]


def test_the_sentence_chooses_1b_1c_and_1e(store: Datastore) -> None:
    retriever = Retriever(store, CPU, RetrievalSettings(system="fast-clustered"))
    ids = torch.tensor([SENTENCE])
    source = torch.from_numpy(STATES).float()[None]
    view, asked = retriever.live.view, Source(ids, torch.ones_like(ids, dtype=torch.bool), source)
    clusters = near_clusters(view, asked, "link")
    assert clusters.tolist() == [[1, 3, 6]]
    chosen = NearestCluster(view, clusters, RetrievalSettings(k=1, temperature=1.0))
    assert chosen.entries.tolist() == [[1, 6, 2, 3, 11, 16]]  # {z12, z24}, {z13, z21}, {z35, z52}
    assert chosen.bounds.tolist() == [[0, 2, 4, 6]]


def test_faster_takes_the_nearest_cluster_and_its_cached_ranking(store: Datastore) -> None:
    faster = look(store, "faster", k=2)
    assert find(faster, 0.5, 1) == ([(1, b, 2.25), (6, d, 2.25)], 1.25)
    np.testing.assert_allclose(p_knn(faster, 0.5, 1), [0, 0.5, 0, 0.5, 0], rtol=1e-6)
    assert find(faster, 10, 5)[0] == [(2, c, 13), (3, c, 13)]
    assert find(faster, 0, 14)[0] == [(11, e, 10), (16, e, 10)]


def test_k_is_k_for_a_short_sentence_too_and_none_is_the_whole_cluster(store: Datastore) -> None:
    whole = [(5, e, 5), (9, a, 5), (0, a, 10)]
    found = [find(look(store, "faster", [A], [[0, 0]], k=k), 20, -1)[0] for k in (1, 2, 3, 64, None)]
    assert found == [whole[:1], whole[:2], whole, whole, whole]
    alone = look(store, "faster", [A], [[0, 0]], k=None, temperature=5 / LN2)
    np.testing.assert_allclose(p_knn(alone, 20, -1), [0.6, 0, 0, 0, 0.4], rtol=1e-6)


def test_joined_clusters_are_ranked_by_the_sum_of_both_distances(store: Datastore) -> None:
    assert find(look(store, "faster", k=2), 0, 6.5) == ([(11, e, 51.25), (16, e, 51.25)], 42.25)
    joined = find(look(store, "faster", k=3, probe=2), 0, 6.5)
    assert joined == ([(1, b, 44.25), (6, d, 44.25), (11, e, 51.25)], 42.25)


def test_an_entry_of_several_joined_clusters_counts_once_by_its_smallest_distance(store: Datastore) -> None:
    joined = look(store, "faster", [A, D], [[0, 0], [7, 7]], k=None, probe=2)
    first = [(4, d, 8), (5, e, 8), (9, a, 10), (0, a, 15), (7, d, 20), (15, d, 20)]
    assert find(joined, 22, 0) == (first, 4)
    second = [(4, d, 9.125), (5, e, 9.125), (9, a, 9.625), (0, a, 14.625), (7, d, 21.125), (15, d, 21.125)]
    assert find(joined, 21.75, 0.25) == (second, 4.625)


def test_faster_without_cached_distances_measures_the_members(store: Datastore) -> None:
    measured = look(store, "faster-exact", k=2, temperature=2 / LN3)
    assert find(measured, 0.5, 1)[0] == [(1, b, 1.25), (6, d, 3.25)]
    np.testing.assert_allclose(p_knn(measured, 0.5, 1), [0, 0.75, 0, 0.25, 0], rtol=1e-6)
    assert find(look(store, "faster-exact", k=None), 1.5, 1)[0] == [(6, d, 1.25), (1, b, 3.25)]


def test_fast_with_clusters_sees_all_members_of_the_chosen_ones(store: Datastore) -> None:
    nearest = [(1, b, 1.25), (6, d, 3.25), (11, e, 81.25), (2, c, 91.25), (3, c, 99.25), (16, e, 225.25)]
    for k in (9, 3):
        assert find(look(store, "fast-clustered", k=k), 0.5, 1)[0] == nearest[:k]


def test_fast_takes_the_c_nearest_tokens_of_each_type_and_the_first_row_of_equals(store: Datastore) -> None:
    def seen(c: int) -> set[int]:
        return {entry for entry, _, _ in find(look(store, "fast", k=99, c=c), 0.5, 1)[0]}

    assert seen(1) == {1, 2, 11}
    assert seen(2) == {1, 6, 2, 3, 11, 16}


def test_knn_sees_what_no_link_reaches(store: Datastore) -> None:
    assert find(look(store, "knn", k=3), 0.5, 1)[0] == [(10, c, 0), (1, b, 1.25), (6, d, 3.25)]
    assert len(find(look(store, "knn", k=99), 0.5, 1)[0]) == 17


def weight_at(looking: SentenceLookup, *state: float) -> float:
    """λ of a state; what the model thinks has no say in it."""
    nothing = torch.zeros(1, 1, 5)
    return looking.weight(looking.lookup.neighbours(torch.tensor([[state]])), nothing, nothing[:, :, 0]).item()


def test_probabilities_are_mixed_by_a_constant_weight(store: Datastore) -> None:
    p_mt = [0.1, 0.2, 0.3, 0.4, 0.0]
    np.testing.assert_allclose(
        mixed(look(store, "faster", k=2, weight=0.6), p_mt, 0.5, 1), [0.04, 0.38, 0.12, 0.46, 0], rtol=1e-6
    )
    np.testing.assert_allclose(mixed(look(store, "faster", k=2, weight=0.0), p_mt, 0.5, 1), p_mt, rtol=1e-6)


@pytest.mark.parametrize(
    ("system", "weight"),
    [("faster", 0.6), ("faster-exact", 0.4), ("fast-clustered", 0.4), ("fast", 0.4), ("knn", 0.75)],
)
def test_a_distance_aware_weight_falls_with_the_nearest_key_or_in_faster_centroid(
    store: Datastore, system: str, weight: float
) -> None:
    looking = look(store, system, k=2, c=4, weight=0.8, adapt="distance", reach=4.0)
    assert weight_at(looking, 1.0, 1.0) == pytest.approx(weight)
    far = look(store, "faster", k=2, weight=0.8, adapt="distance", reach=4.0)
    assert weight_at(far, 1.0, 3.0) == 0.0  # 9 from c'_1B


def test_euclidean_takes_the_root_of_each_term(tmp_path: Path) -> None:
    store = written(EXAMPLE, tmp_path / "store", vocabulary=5, k_max=None, metric="euclidean")
    assert find(look(store, "faster", k=4), 10, 5) == ([(2, c, 5), (3, c, 5)], 3)
    assert find(look(store, "faster-exact", k=4), 10, 5)[0] == [(3, c, 1), (2, c, 5)]


@pytest.mark.parametrize("system", ["fast", "fast-clustered", "faster", "faster-exact"])
def test_a_type_never_seen_adds_nothing_and_alone_leaves_base_mt(store: Datastore, system: str) -> None:
    p_mt = [0.1, 0.2, 0.3, 0.4, 0.0]
    alone = look(store, system, [F], [[0, 0]], k=4, weight=0.9)
    assert find(alone, 0, 0) == ([], math.inf)
    np.testing.assert_allclose(mixed(alone, p_mt, 0, 0), p_mt, rtol=1e-6)
    among = look(store, system, [F, *SENTENCE], np.concatenate([np.zeros((1, 2)), STATES]), k=4)
    assert find(among, 0.5, 1) == find(look(store, system, k=4), 0.5, 1)


def test_equally_near_clusters_are_taken_by_number(store: Datastore) -> None:
    # (4, 1.5) is 16.25 from c_1B and from c_2B: 1B is taken, whose z12 and z24 are found
    assert find(look(store, "faster", [B], [[4, 1.5]], k=4), 0, 0)[0] == [(1, b, 2), (6, d, 2)]
    assert find(look(store, "faster", k=4), 5.5, 1)[0] == [(1, b, 22.25), (6, d, 22.25)]
