"""The paper's section 3.3 with numbers: five source types A-E, five target tokens a-e, and the sentence B C E.

h12 is the state of the second source token of the first segment, z12 that of its second target token. The paper
gives the clusters (1B = {h12, h21}, 2B = {h32, h41}, 1C = {h13, h22}, 1E = {h34, h52}) and what they map to
(1B: z12, z24; 1C: z13, z21; 1E: z35, z52). The rest is ours: F is a type never seen, z34 has no link.

          source              target              links, i-i where not said
  1       A B C               a b c
  2       B C D A             c d e d             1-4, 2-1, 3-2, 3-3, 4-3
  3       D B A E             d b a c e           1-1, 2-2, 3-3, 4-5, and none to z34
  4       B E C               e b c               1-2, 2-1, 3-3
  5       D E                 d e

  entry   0   1   2 | 3   4   5   6 | 7   8   9   10  11 | 12  13  14 | 15  16
          z11 z12 z13 z21 z22 z23 z24 z31 z32 z33 z34 z35  z41 z42 z43  z51 z52
  token   a   b   c   c   d   e   d   d   b   a   c   e    e   b   c    d   e

  cluster 0: 1A   1: 1B   2: 2B   3: 1C   4: 2C   5: 1D   6: 1E   7: 2E
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from . import datastore, systems
from .datastore import EXACT, Place, Segment, Store
from .systems import Found, Settings

A, B, C, D, E, F = range(6)
a, b, c, d, e = range(5)

SEGMENTS = [
    Segment(
        [A, B, C],
        [a, b, c],
        [(0, 0), (1, 1), (2, 2)],
        np.array([[0, 0], [0, 1], [1, 0]]) * 1.0,
        np.array([[19, -4], [0, 0], [10, 0]]) * 1.0,
    ),
    Segment(
        [B, C, D, A],
        [c, d, e, d],
        [(0, 3), (1, 0), (2, 1), (2, 2), (3, 2)],
        np.array([[0, 3], [3, 0], [7, 7], [0, 0]]) * 1.0,
        np.array([[10, 4], [26, 0], [22, 0], [2, 0]]) * 1.0,
    ),
    Segment(
        [D, B, A, E],
        [d, b, a, c, e],
        [(0, 0), (1, 1), (2, 2), (3, 4)],
        np.array([[7, 7], [8, 0], [0, 0], [4, 4]]) * 1.0,
        np.array([[24, 4], [-20, 0], [19, 1], [0.5, 1], [0, 10]]),
    ),
    Segment(
        [B, E, C],
        [e, b, c],
        [(0, 1), (1, 0), (2, 2)],
        np.array([[8, 2], [-6, 0], [9, 9]]) * 1.0,
        np.array([[-40, 0], [-20, 2], [40, 40]]) * 1.0,
    ),
    Segment(
        [D, E],
        [d, e],
        [(0, 0), (1, 1)],
        np.array([[7, 7], [4, 6]]) * 1.0,
        np.array([[24, -4], [0, 16]]) * 1.0,
    ),
]
SECOND = {(2, 1), (3, 0), (3, 1), (3, 2)}  # in the second cluster of their type: h32, h41 (2B), h42 (2E), h43 (2C)
ASSIGN: dict[Place, int] = {
    (number, i): int((number, i) in SECOND)
    for number, segment in enumerate(SEGMENTS)
    for i in range(len(segment.source_ids))
}

# B is 1 from c_1B = (0, 2) and 50 from c_2B = (8, 1); C is 1 from c_1C = (2, 0) and 113 from c_2C = (9, 9);
# E is 1 from c_1E = (4, 5) and 116 from c_2E = (-6, 0)
SENTENCE = [B, C, E]
STATES = np.array([[1, 2], [2, 1], [4, 4]]) * 1.0

EXAMPLE = datastore.build(SEGMENTS, ASSIGN, vocabulary=6, k_max=4)


def state(*values: float) -> NDArray[np.float64]:
    return np.array(values)


def listed(found: Found) -> list[tuple[int, int, float]]:
    return [(entry, token, distance) for entry, token, distance in found.neighbours]


def test_rows_are_sorted_by_type_cluster_and_corpus_and_keep_their_links() -> None:
    # A: h11 h24 h33 | B: h12 h21, h32 h41 | C: h13 h22, h43 | D: h23 h31 h51 | E: h34 h52, h42
    assert EXAMPLE["type_offsets"].tolist() == [0, 3, 7, 10, 13, 16, 16]
    assert EXAMPLE["cluster_offsets"].tolist() == [0, 1, 3, 5, 6, 8, 8]
    assert EXAMPLE["cluster_starts"].tolist() == [0, 3, 5, 7, 9, 10, 13, 15, 16]
    assert EXAMPLE["source_keys"][3:7].tolist() == [[0, 1], [0, 3], [8, 0], [8, 2]]
    assert EXAMPLE["link_offsets"].tolist() == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17]
    assert EXAMPLE["link_entries"].tolist() == [0, 5, 9, 1, 6, 8, 13, 2, 3, 14, 4, 5, 7, 15, 11, 16, 12]


def test_entries_are_the_target_tokens_in_corpus_order() -> None:
    assert EXAMPLE["target_ids"].tolist() == [a, b, c, c, d, e, d, d, b, a, c, e, e, b, c, d, e]
    assert EXAMPLE["target_offsets"].tolist() == [0, 3, 7, 12, 15, 17]
    assert EXAMPLE["target_keys"][[1, 6, 10]].tolist() == [[0, 0], [2, 0], [0.5, 1]]


def test_centroids_are_means_over_tokens_and_over_distinct_entries() -> None:
    sources = [[0, 0], [0, 2], [8, 1], [2, 0], [9, 9], [7, 7], [4, 5], [-6, 0]]
    # 1A: z11 (19, -4), z23 (22, 0), z33 (19, 1); 1D: z22 (26, 0), z23 (22, 0), z31 (24, 4), z51 (24, -4)
    targets = [[20, -1], [1, 0], [-20, 1], [10, 2], [40, 40], [24, 0], [0, 13], [-40, 0]]
    assert EXAMPLE["cluster_source"].tolist() == sources
    assert EXAMPLE["cluster_target"].tolist() == targets


def test_rankings_go_by_distance_to_the_centroid_then_by_entry() -> None:
    # of two members each is as far from their mean as the other: 1B, 2B, 1C and 1E are ties
    assert EXAMPLE["ranking_offsets"].tolist() == [0, 3, 5, 7, 9, 10, 14, 16, 17]
    assert EXAMPLE["ranking_entries"].tolist() == [5, 9, 0, 1, 6, 8, 13, 2, 3, 14, 4, 5, 7, 15, 11, 16, 12]
    assert EXAMPLE["ranking_tokens"].tolist() == [e, a, a, b, d, b, b, c, c, c, d, e, d, d, e, e, e]
    assert EXAMPLE["ranking_distances"].tolist() == [5, 5, 10, 1, 1, 1, 1, 4, 4, 0, 4, 4, 16, 16, 9, 9, 0]


def test_a_ranking_is_cut_at_k_max() -> None:
    store = datastore.build(SEGMENTS, ASSIGN, vocabulary=6, k_max=2)
    assert store["ranking_offsets"].tolist() == [0, 2, 4, 6, 8, 9, 11, 13, 14]
    assert store["ranking_entries"].tolist() == [5, 9, 1, 6, 8, 13, 2, 3, 14, 4, 5, 11, 16, 12]


def test_the_arrays_have_their_types() -> None:
    kinds = {name: array.dtype.name for name, array in EXAMPLE.items()}
    assert {name for name, kind in kinds.items() if kind == "int64"} == {
        "target_offsets", "type_offsets", "link_offsets", "cluster_offsets", "cluster_starts", "ranking_offsets",
    }  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == "int32"} == {
        "target_ids", "link_entries", "ranking_entries", "ranking_tokens",
    }  # fmt: skip
    assert {name for name, kind in kinds.items() if kind == "float16"} == {
        "target_keys", "source_keys", "cluster_source", "cluster_target",
    }  # fmt: skip
    assert kinds["ranking_distances"] == "float32"
    assert len(kinds) == 15


def test_the_sentence_chooses_1b_1c_and_1e() -> None:
    assert systems.clusters_of_sentence(EXAMPLE, SENTENCE, STATES, Settings()) == [1, 3, 6]
    targets = [sorted(systems.entries_of_cluster(EXAMPLE, cluster)) for cluster in (1, 3, 6)]
    assert targets == [[1, 6], [2, 3], [11, 16]]  # {z12, z24}, {z13, z21}, {z35, z52}


def test_faster_takes_the_nearest_cluster_and_its_cached_ranking() -> None:
    # (0.5, 1) is 1.25 from c'_1B = (1, 0), 91.25 from c'_1C = (10, 2), 144.25 from c'_1E = (0, 13);
    # z12 and z24 are both 1 from c'_1B, so that d = 2.25 for either, though z12 is nearer to the state
    found = systems.faster(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings(k=2))
    assert listed(found) == [(1, b, 2.25), (6, d, 2.25)]
    assert found.nearest == 1.25
    np.testing.assert_allclose(systems.distribution(found, Settings(), 5), [0, 0.5, 0, 0.5, 0])


def test_faster_finds_the_other_clusters_from_their_side() -> None:
    # (10, 5) is 9 from c'_1C, (0, 14) is 1 from c'_1E
    assert listed(systems.faster(EXAMPLE, SENTENCE, STATES, state(10, 5), Settings())) == [(2, c, 13), (3, c, 13)]
    assert listed(systems.faster(EXAMPLE, SENTENCE, STATES, state(0, 14), Settings())) == [(11, e, 10), (16, e, 10)]


def test_k_is_k_for_a_short_sentence_too_and_none_is_the_whole_cluster() -> None:
    # the sentence A, on c'_1A = (20, -1): z23 (e) at 5, z33 (a) at 5, z11 (a) at 10
    def found(k: int | None) -> Found:
        return systems.faster(EXAMPLE, [A], state(0, 0)[None], state(20, -1), Settings(k=k))

    whole = [(5, e, 5), (9, a, 5), (0, a, 10)]
    assert [listed(found(k)) for k in (1, 2, 3, 64, None)] == [whole[:1], whole[:2], whole, whole, whole]
    # exp(-5/T) : exp(-5/T) : exp(-10/T) = 1 : 1 : 1/2, by token e 0.4 and a 0.6
    settings = Settings(temperature=5 / math.log(2))
    np.testing.assert_allclose(systems.distribution(found(None), settings, 5), [0.6, 0, 0, 0, 0.4])


def test_a_ranking_too_short_for_k_is_refused() -> None:
    store = datastore.build(SEGMENTS, ASSIGN, vocabulary=6, k_max=2)
    for k in (3, None):
        with pytest.raises(ValueError, match="ranks 2 of 3"):
            systems.faster(store, [A], state(0, 0)[None], state(20, -1), Settings(k=k))
    assert len(systems.faster(store, [A], state(0, 0)[None], state(20, -1), Settings(k=2)).neighbours) == 2


def test_joined_clusters_are_ranked_by_the_sum_of_both_distances() -> None:
    # (0, 6.5) is 42.25 from c'_1E, whose members are 9 from it: 51.25; it is 43.25 from c'_1B, and they 1: 44.25
    alone = systems.faster(EXAMPLE, SENTENCE, STATES, state(0, 6.5), Settings(k=2))
    joined = systems.faster(EXAMPLE, SENTENCE, STATES, state(0, 6.5), Settings(k=3, probe=2))
    assert listed(alone) == [(11, e, 51.25), (16, e, 51.25)]
    assert listed(joined) == [(1, b, 44.25), (6, d, 44.25), (11, e, 51.25)]
    assert alone.nearest == joined.nearest == 42.25


def test_an_entry_of_several_joined_clusters_counts_once_by_its_smallest_distance() -> None:
    def found(*values: float) -> Found:
        states = np.array([[0, 0], [7, 7]]) * 1.0
        return systems.faster(EXAMPLE, [A, D], states, state(*values), Settings(k=None, probe=2))

    # z23 is 4 from c'_1D = (24, 0) and 5 from c'_1A = (20, -1). On z23 = (22, 0) 1D is nearer too: 4, against 5
    first = found(22, 0)
    assert first.nearest == 4
    assert listed(first) == [(4, d, 8), (5, e, 8), (9, a, 10), (0, a, 15), (7, d, 20), (15, d, 20)]
    # from (21.75, 0.25) 1A is nearer, 4.625 against 5.125, but for z23 the sum by 1D is smaller, 9.125 against 9.625
    second = found(21.75, 0.25)
    assert second.nearest == 4.625
    assert listed(second)[:3] == [(4, d, 9.125), (5, e, 9.125), (9, a, 9.625)]
    assert listed(second)[3:] == [(0, a, 14.625), (7, d, 21.125), (15, d, 21.125)]


def test_faster_without_cached_distances_measures_the_members() -> None:
    # (0.5, 1) is 1.25 from z12 = (0, 0) and 3.25 from z24 = (2, 0): with T = 2/ln 3 weights of 3 to 1
    settings = Settings(k=2, temperature=2 / math.log(3))
    found = systems.faster_exact(EXAMPLE, SENTENCE, STATES, state(0.5, 1), settings)
    assert listed(found) == [(1, b, 1.25), (6, d, 3.25)]
    np.testing.assert_allclose(systems.distribution(found, settings, 5), [0, 0.75, 0, 0.25, 0])
    whole = systems.faster_exact(EXAMPLE, SENTENCE, STATES, state(1.5, 1), Settings(k=None))
    assert listed(whole) == [(6, d, 1.25), (1, b, 3.25)]


def test_fast_with_clusters_sees_all_members_of_the_chosen_ones() -> None:
    # from (0.5, 1): z12 and z24 as above, z35 (0, 10) 81.25, z13 (10, 0) 91.25, z21 (10, 4) 99.25, z52 (0, 16) 225.25
    found = systems.fast_clustered(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings(k=9))
    nearest = [(1, b, 1.25), (6, d, 3.25), (11, e, 81.25), (2, c, 91.25), (3, c, 99.25), (16, e, 225.25)]
    assert listed(found) == nearest
    assert listed(systems.fast_clustered(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings(k=3))) == nearest[:3]


def test_fast_takes_the_c_nearest_tokens_of_each_type_and_the_first_row_of_equals() -> None:
    def seen(c: int) -> set[int]:
        found = systems.fast(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings(k=99, c=c))
        return {neighbour.entry for neighbour in found.neighbours}

    # B (1, 2) is 2 from both h12 and h21, C (2, 1) 2 from both h13 and h22; E (4, 4) 0 from h34 and 4 from h52
    assert seen(1) == {1, 2, 11}
    assert seen(2) == {1, 6, 2, 3, 11, 16}
    # then h41 (8, 2) at 49 is before h32 (8, 0) at 53; C and E have one more token each
    assert seen(3) == {1, 6, 13, 2, 3, 14, 11, 16, 12}
    assert seen(4) == seen(99) == {1, 6, 13, 8, 2, 3, 14, 11, 16, 12}


def test_fast_counts_an_entry_once_a_sentence() -> None:
    # h23 (D) links to z22 and z23, h24 (A) to z23 as well
    found = systems.fast(EXAMPLE, [A, D, D], np.array([[0, 0], [7, 7], [7, 7]]) * 1.0, state(22, 0), Settings(k=4, c=9))
    # z23 is 0 away, z33 (19, 1) 10, z22 (26, 0) 16, z31 (24, 4) and z51 (24, -4) 20 both
    assert listed(found) == [(5, e, 0), (9, a, 10), (4, d, 16), (7, d, 20)]


def test_knn_sees_what_no_link_reaches() -> None:
    # z34 lies on (0.5, 1)
    found = systems.knn(EXAMPLE, state(0.5, 1), Settings(k=3))
    assert listed(found) == [(10, c, 0), (1, b, 1.25), (6, d, 3.25)]
    assert len(systems.knn(EXAMPLE, state(0.5, 1), Settings(k=99)).neighbours) == 17


def test_the_whole_cluster_needs_a_cluster() -> None:
    settings = Settings(k=None)
    with pytest.raises(ValueError, match="whole cluster"):
        systems.knn(EXAMPLE, state(0, 0), settings)
    for system in (systems.fast, systems.fast_clustered):
        with pytest.raises(ValueError, match="whole cluster"):
            system(EXAMPLE, SENTENCE, STATES, state(0, 0), settings)


def test_probabilities_are_mixed_by_a_constant_weight() -> None:
    p_mt = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    found = systems.faster(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings(k=2))
    # 0.6 · (0, 0.5, 0, 0.5, 0) + 0.4 · p_MT
    np.testing.assert_allclose(systems.mixed(p_mt, found, Settings(lam=0.6)), [0.04, 0.38, 0.12, 0.46, 0])
    assert systems.mixed(p_mt, found, Settings(lam=0.0)).tolist() == p_mt.tolist()


def test_what_the_search_has_banned_stays_banned() -> None:
    found = systems.faster(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings(k=2))
    mixed = systems.mixed(np.array([0.1, 0.2, 0.3, 0.4, 0.0]), found, Settings(lam=0.6), banned=[d])
    np.testing.assert_allclose(mixed, [0.04, 0.38, 0.12, 0, 0])


def test_a_distance_aware_weight_falls_with_the_nearest_key_or_in_faster_centroid() -> None:
    # (1, 1) is 1 from c'_1B and 2 from both of its members: 1 - 1/4 and 1 - 2/4 of 0.8; z34 (0.5, 1) is 0.25 away
    settings = Settings(k=2, lam_max=0.8, tau=4.0)
    arguments = EXAMPLE, SENTENCE, STATES, state(1, 1), settings
    assert systems.weight_of(systems.faster(*arguments), settings) == pytest.approx(0.6)
    assert systems.weight_of(systems.faster_exact(*arguments), settings) == pytest.approx(0.4)
    assert systems.weight_of(systems.fast_clustered(*arguments), settings) == pytest.approx(0.4)
    assert systems.weight_of(systems.fast(*arguments), settings) == pytest.approx(0.4)
    assert systems.weight_of(systems.knn(EXAMPLE, state(1, 1), settings), settings) == pytest.approx(0.75)
    far = systems.faster(EXAMPLE, SENTENCE, STATES, state(1, 3), settings)  # 9 from c'_1B
    assert systems.weight_of(far, settings) == 0.0


def test_euclidean_takes_the_root_of_each_term() -> None:
    # (10, 5) is 3 from c'_1C, and z13 and z21 are 2 from it; to the state itself they are 5 and 1
    settings = Settings(metric="euclidean")
    found = systems.faster(EXAMPLE, SENTENCE, STATES, state(10, 5), settings)
    assert listed(found) == [(2, c, 5), (3, c, 5)]
    assert found.nearest == 3
    measured = systems.faster_exact(EXAMPLE, SENTENCE, STATES, state(10, 5), settings)
    assert listed(measured) == [(3, c, 1), (2, c, 5)]


def test_cosine_looks_at_directions_only() -> None:
    segment = Segment(
        [A, A], [a, b], [(0, 0), (1, 1)], np.array([[2, 0], [4, 0]]) * 1.0, np.array([[3, 0], [0, 5]]) * 1.0
    )
    store = datastore.build([segment], {(0, 0): 0, (0, 1): 0}, vocabulary=1, k_max=4, metric="cosine")
    assert store["target_keys"].tolist() == [[1, 0], [0, 1]]
    assert store["cluster_source"].tolist() == [[1, 0]]
    # the mean (0.5, 0.5) has length 0.7071...: 1/√2 twice, in float16 1448/2048
    assert store["cluster_target"].tolist() == [[0.70703125, 0.70703125]]
    # s = (1 - 1448/2048)² + (1448/2048)² = 0.585723876953125 to either key
    np.testing.assert_array_equal(store["ranking_distances"], np.array([0.585723876953125] * 2, np.float32))

    settings = Settings(metric="cosine")
    exact = systems.knn(store, state(0, 7), settings)
    assert listed(exact) == [(1, b, 0), (0, a, 1)]  # 1 - cos
    found = systems.faster(store, [A], state(1, 0)[None], state(0, 7), settings)
    np.testing.assert_allclose([neighbour.distance for neighbour in found.neighbours], 0.585723876953125)
    assert found.nearest == pytest.approx(0.2928619384765625)


def test_a_type_never_seen_adds_nothing_and_alone_leaves_base_mt() -> None:
    p_mt = np.array([0.1, 0.2, 0.3, 0.4, 0.0])
    zeros = np.zeros((1, 2))
    for system in (systems.fast, systems.fast_clustered, systems.faster, systems.faster_exact):
        alone = system(EXAMPLE, [F], zeros, state(0, 0), Settings())
        assert alone == systems.NOTHING
        for settings in (Settings(lam=0.9), Settings(lam_max=0.9, tau=9.0)):
            assert systems.mixed(p_mt, alone, settings).tolist() == p_mt.tolist()
        among = system(EXAMPLE, [F, *SENTENCE], np.concatenate([zeros, STATES]), state(0.5, 1), Settings())
        assert among == system(EXAMPLE, SENTENCE, STATES, state(0.5, 1), Settings())


def test_a_cluster_without_entries_gives_way_to_the_next() -> None:
    # the first two clusters of A have no tokens: their centroids are zeros, just where the source token is
    assign = {place: cluster + 2 * (SEGMENTS[place[0]].source_ids[place[1]] == A) for place, cluster in ASSIGN.items()}
    store = datastore.build(SEGMENTS, assign, vocabulary=6, k_max=4)
    assert store["cluster_offsets"].tolist() == [0, 3, 5, 7, 8, 10, 10]
    assert store["cluster_target"][:3].tolist() == [[0, 0], [0, 0], [20, -1]]
    assert systems.clusters_of_sentence(store, [A], state(0, 0)[None], Settings()) == [2]
    for system in (systems.fast_clustered, systems.faster, systems.faster_exact):
        arguments = [A, *SENTENCE], np.concatenate([np.zeros((1, 2)), STATES]), state(0, 0), Settings()
        assert system(store, *arguments) == system(EXAMPLE, *arguments)


def test_equally_near_clusters_are_taken_by_number() -> None:
    # (4, 1.5) is 16.25 from c_1B = (0, 2) and from c_2B = (8, 1)
    assert systems.clusters_of_sentence(EXAMPLE, [B], state(4, 1.5)[None], Settings()) == [1]
    # (5.5, 1) is 21.25 from c'_1B = (1, 0) and from c'_1C = (10, 2)
    found = systems.faster(EXAMPLE, SENTENCE, STATES, state(5.5, 1), Settings())
    assert listed(found) == [(1, b, 22.25), (6, d, 22.25)]


def test_a_segment_without_links_only_moves_the_entries() -> None:
    empty = Segment([A, B], [a, b], [], np.ones((2, 2)), np.ones((2, 2)))
    assign = {(number + 1, i): cluster for (number, i), cluster in ASSIGN.items()}
    store = datastore.build([empty, *SEGMENTS], assign, vocabulary=6, k_max=4)
    moved = {"link_entries", "ranking_entries"}
    for name in EXAMPLE:
        if not name.startswith("target_"):
            np.testing.assert_array_equal(store[name], EXAMPLE[name] + 2 * (name in moved))


def test_a_repeated_link_is_one_link() -> None:
    doubled = [segment._replace(links=[*segment.links, *segment.links]) for segment in SEGMENTS]
    store = datastore.build(doubled, ASSIGN, vocabulary=6, k_max=4)
    for name, array in EXAMPLE.items():
        np.testing.assert_array_equal(store[name], array)


def drawn(seed: int) -> tuple[Store, list[int], NDArray[np.float32], NDArray[np.float32]]:
    """A random store, and a sentence's ids, states and one decoder state."""
    rng = np.random.default_rng(seed)
    segments = datastore.random_segments(rng)
    store = datastore.build(segments, datastore.random_clusters(rng, segments), vocabulary=5, k_max=EXACT)
    return store, *datastore.random_sentence(rng), datastore.random_states(rng, 1, 2)[0]


@given(st.integers(0, 2**32 - 1))
def test_distances_of_random_stores_are_exact_in_single_precision(seed: int) -> None:
    """So that a faster version may order ties as the oracle does, by differences or by products."""
    store, _, _, h = drawn(seed)
    for centroid in store["cluster_target"]:
        for key in [h, *store["target_keys"]]:
            x, y = key.astype(np.float32), centroid.astype(np.float32)
            true = datastore.squared(key, centroid)
            assert float(np.sum((x - y) ** 2)) == true
            assert float(np.sum(x * x) - 2 * np.sum(x * y) + np.sum(y * y)) == true


@given(st.integers(0, 2**32 - 1))
def test_systems_that_see_the_same_find_the_same(seed: int) -> None:
    store, source, states, h = drawn(seed)
    settings = Settings(k=5, c=99)
    everything = systems.knn(store, h, Settings(k=999)).neighbours
    linked = set(store["link_entries"].tolist())
    # all tokens of the types of the sentence: what links from them reach, of everything in its order
    reached = {
        int(entry)
        for kind in source
        for row in systems.span(store["type_offsets"], kind)
        for entry in store["link_entries"][store["link_offsets"][row] : store["link_offsets"][row + 1]]
    }
    assert reached <= linked
    fast = systems.fast(store, source, states, h, settings)
    assert fast.neighbours == [neighbour for neighbour in everything if neighbour.entry in reached][:5]
    # joined over every cluster of the sentence and uncut, Faster reaches what Fast with clusters does
    clustered = systems.fast_clustered(store, source, states, h, Settings(k=999))
    joined = systems.faster(store, source, states, h, Settings(k=None, probe=99))
    assert {n.entry: n.token for n in joined.neighbours} == {n.entry: n.token for n in clustered.neighbours}
    # and one cluster uncut is the same set by either distance
    cached = systems.faster(store, source, states, h, Settings(k=None))
    measured = systems.faster_exact(store, source, states, h, Settings(k=None))
    assert sorted(n[:2] for n in cached.neighbours) == sorted(n[:2] for n in measured.neighbours)


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 2, 3, None]))
def test_faster_does_not_ask_how_far_the_chosen_cluster_is(seed: int, k: int | None) -> None:
    """d(c_l, h) cancels in the softmax: the row of a cluster is that of its ranking alone."""
    store, source, states, h = drawn(seed)
    settings = Settings(k=k, temperature=2.0)
    found = systems.faster(store, source, states, h, settings)
    if found.neighbours:
        _, cluster = systems.nearest_clusters(store, source, states, h, settings)[0]
        ranks = systems.span(store["ranking_offsets"], cluster)[:k]
        assert [n.entry for n in found.neighbours] == store["ranking_entries"][ranks].tolist()
        row = np.zeros(5)
        for rank in ranks:
            row[store["ranking_tokens"][rank]] += np.exp(-store["ranking_distances"][rank].astype(np.float64) / 2)
        np.testing.assert_allclose(systems.distribution(found, settings, 5), row / row.sum())


def cases(seed: int) -> dict[str, bool]:
    """Say which of the cases that matter one random store and sentence hold."""
    segments = datastore.random_segments(np.random.default_rng(seed))  # those of the store
    store, source, states, h = drawn(seed)
    distinct = len(set(store["link_entries"].tolist()))
    near = [s for s, _ in systems.nearest_clusters(store, source, states, h, Settings())[:2]]
    keys = [neighbour.distance for neighbour in systems.fast(store, source, states, h, Settings(k=99)).neighbours]
    return {
        "segment without links": any(not segment.links for segment in segments),
        "repeated link": any(len(set(segment.links)) < len(segment.links) for segment in segments),
        "source token without a link": len(store["source_keys"]) < sum(len(segment.source_ids) for segment in segments),
        "entry without a link": distinct < len(store["target_ids"]),
        "entry of several tokens": distinct < len(store["link_entries"]),
        "type of several clusters": bool(np.diff(store["cluster_offsets"]).max() > 1),
        "cluster of several tokens": bool(np.diff(store["cluster_starts"]).max(initial=0) > 1),
        "two nearest clusters": len(set(near)) < len(near),
        "keys at one distance": len(set(keys)) < len(keys),
        "sentence that finds nothing": systems.faster(store, source, states, h, Settings()) == systems.NOTHING,
    }


def test_random_stores_hold_the_cases_that_matter() -> None:
    held = [cases(seed) for seed in range(100)]
    assert [name for name in held[0] if sum(case[name] for case in held) < 2] == []
