"""What was taught is found by every system: each answers as the oracle does on the part and the lessons together."""

import tempfile
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.corpus.segment import Segment as Text
from knnmt.datastore.format import Metric
from knnmt.datastore.lessons import Lesson, Record
from knnmt.datastore.store import Datastore
from knnmt.retrieval.combine import weights
from knnmt.retrieval.lookup import LESSONS_SHARE, MUCH_NEARER, SAME
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.systems import Retriever

from ..oracle import datastore, systems
from ..oracle.datastore import Segment, as_is, unit
from .examples import CPU, K_MAX, ORACLE, VOCABULARY, Case, oracle_settings


def lesson(segment: Segment, name: str, metric: Metric) -> Lesson:
    """A segment of the oracle as a lesson."""
    kept = unit if metric == "cosine" else as_is
    states, keys = (
        np.array([kept(state) for state in side], np.float16) for side in (segment.source_states, segment.target_states)
    )
    source_ids, target_ids = (np.array(ids, np.int32) for ids in (segment.source_ids, segment.target_ids))
    links = np.array(segment.links, np.int32).reshape(-1, 2)
    return Lesson(Text(f"source {name}", f"target {name}", "a test", name), source_ids, target_ids, links, states, keys)


def teach(store: Datastore, *lessons: Lesson) -> None:
    with patch("os.fsync"), store.writing():
        store._write(Record(taught=lessons))


def drawn(seed: int, metric: Metric) -> tuple[Case, list[Segment]]:
    """A store, sentences to look up in it, and segments to teach it."""
    rng = np.random.default_rng(seed)
    case = Case.drawn(seed, metric)
    return case, datastore.random_segments(rng, count=3, width=2)


def expected(
    system: str, case: Case, taught: datastore.Store, row: int, beam: int, s: systems.Settings
) -> tuple[set[int], Any]:
    """What the oracle finds in the part and among the lessons, and the distribution it makes of both.

    Lessons are heard where they are much nearer than anything in the part; then nearly all of p_kNN is theirs.
    """
    about = case.ids[row], case.source[row], case.states[row, beam]
    stored = ORACLE[system](case.arrays, *about, s)
    new = ORACLE["knn" if system == "knn" else "fast"](taught, *about, s)
    limit = MUCH_NEARER * stored.nearest + SAME * s.temperature
    heard = [near for near in new.neighbours if near.distance <= limit]
    nearest = min([stored.nearest, *(near.distance for near in heard)])
    share = (LESSONS_SHARE if stored.neighbours else 1.0) if heard else 0.0
    of_part, of_lessons = (systems.distribution(systems.Found(some, nearest), s, VOCABULARY)
                           for some in (stored.neighbours, heard))  # fmt: skip
    weight = systems.weight_of(systems.Found(stored.neighbours + heard, nearest), s)
    p_knn = (1 - share) * of_part + share * of_lessons
    first = len(case.arrays["target_ids"])
    entries = {near.entry for near in stored.neighbours} | {first + near.entry for near in heard}
    return entries, weight * p_knn + (1 - weight) * case.p_mt[row, beam]


@pytest.mark.parametrize("system", ORACLE)
@given(
    seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 3, 7]), c=st.sampled_from([1, 3]),
    metric=st.sampled_from(["squared", "euclidean", "cosine"]), adapt=st.sampled_from(["constant", "distance"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_a_system_finds_lessons_beside_what_is_stored(
    system: str, seed: int, k: int, c: int, metric: Metric, adapt: Any
) -> None:
    case, segments = drawn(seed, metric)
    one_cluster = dict.fromkeys(datastore.random_clusters(np.random.default_rng(0), segments), 0)  # in corpus order
    arrays = datastore.build(segments, one_cluster, VOCABULARY, K_MAX, metric=metric)
    chosen = RetrievalSettings(system=system, k=k, c=c, temperature=1.5, weight=0.7, adapt=adapt, reach=4.0)
    with tempfile.TemporaryDirectory() as folder:
        store = case.write(Path(folder) / "store")
        teach(store, *(lesson(segment, str(number), metric) for number, segment in enumerate(segments)))
        retriever, wanted = Retriever(store, CPU, chosen), oracle_settings(chosen, metric)
        ours, found = case.mixed(retriever), case.found(retriever)
        shares = found.scores(1.5).softmax(dim=-1).nan_to_num()
        for row in range(len(case.ids)):
            for beam in range(case.states.shape[1]):
                entries, p = expected(system, case, arrays, row, beam, wanted)
                np.testing.assert_allclose(ours[row, beam], p, atol=1e-5)
                if metric == "squared":
                    assert set(found.entries[row, beam].tolist()) - {-1} == entries
                # what evidence shows adds up to the same
                weight = weights(found.nearest, chosen, retriever.tensors.scale)[row, beam]
                p_knn = torch.zeros(VOCABULARY).index_add_(0, found.tokens[row, beam], shares[row, beam])
                shown = weight * p_knn + (1 - weight) * torch.from_numpy(case.p_mt[row, beam])
                np.testing.assert_allclose(shown.numpy(), p, atol=1e-5)


@pytest.mark.parametrize("system", [*ORACLE])
def test_a_retriever_sees_at_once_what_is_taught_and_what_is_removed(tmp_path: Path, system: str) -> None:
    case, segments = drawn(4, "squared")
    store = case.write(tmp_path / "store")
    chosen = RetrievalSettings(system=system, k=7, c=9, temperature=1.0, weight=0.5, adapt="constant")
    retriever = Retriever(store, CPU, chosen)
    before = case.found(retriever)
    teach(store, lesson(segments[0], "a", "squared"), lesson(segments[1], "b", "squared"))
    teach(store, lesson(segments[2], "c", "squared"))
    entries = len(case.arrays["target_ids"])
    with_all = case.found(retriever).entries
    assert (with_all >= entries).any()
    assert (with_all < entries + sum(len(segment.target_ids) for segment in segments)).all()
    with patch("os.fsync"):
        assert store.remove(["b", "a", "none"]) == ["b", "a"]
    left = case.found(retriever).entries
    first = entries + len(segments[0].target_ids) + len(segments[1].target_ids)
    assert not ((left >= entries) & (left < first)).any()
    with patch("os.fsync"):
        store.remove(["c"])
    after = case.found(retriever)
    assert all(torch.equal(one, other) for one, other in zip(before.columns(), after.columns(), strict=True))


@pytest.mark.parametrize("system", [*ORACLE])
def test_a_folded_lesson_is_found_once_and_by_its_number_in_the_part(tmp_path: Path, system: str) -> None:
    """After compaction a lesson is in the part too: its entries must not count twice."""
    rng = np.random.default_rng(5)
    segments = datastore.random_segments(rng, count=5, width=2)
    case = Case.drawn(5)
    case = Case(
        datastore.build(segments, datastore.random_clusters(rng, segments), VOCABULARY, K_MAX),
        case.metric, case.ids, case.source, case.states, case.p_mt,
    )  # fmt: skip
    store = case.write(tmp_path / "store")
    made = lesson(segments[4], "e", "squared")
    teach(store, Lesson(**vars(made) | {"folded": 4}))
    chosen = RetrievalSettings(system=system, k=7, c=9, temperature=1.0, weight=0.5, adapt="constant")
    found = case.found(Retriever(store, CPU, chosen)).entries
    assert found.max() < len(case.arrays["target_ids"])
    for row in found.flatten(0, 1).tolist():
        there = [entry for entry in row if entry >= 0]
        assert len(set(there)) == len(there)


def test_nothing_taught_costs_nothing(tmp_path: Path) -> None:
    case = Case.drawn(6)
    retriever = Retriever(case.write(tmp_path / "store"), CPU, RetrievalSettings(system="fast", temperature=1.0))
    assert type(case.look(retriever).lookup).__name__ == "Exact"
