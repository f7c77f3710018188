"""What was taught is found by every system: each answers as the oracle does on the part and the lessons together."""

import math
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
from knnmt.retrieval.lookup import MUCH_NEARER, SAME, TAUGHT
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.systems import Retriever

from ..oracle import datastore, systems
from ..oracle.datastore import Segment, as_is, unit
from .examples import CPU, K_MAX, ORACLE, VOCABULARY, Case, assert_same


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


def together(system: str, taught: datastore.Store, entries: int) -> Any:
    """The oracle of a system with lessons: the k best scores of what the two stores give, the part's first if equal.

    Of the lessons, only entries much nearer than anything in the part count, each as TAUGHT.
    """

    def find(store: Any, ids: Any, source: Any, state: Any, s: systems.Settings) -> systems.Found:
        stored = ORACLE[system](store, ids, source, state, s)
        new = ORACLE["knn" if system == "knn" else "fast"](taught, ids, source, state, s)
        limit = MUCH_NEARER * stored.nearest + SAME * s.temperature
        heard = [near for near in new.neighbours if near.distance <= limit]
        louder = s.temperature * math.log(TAUGHT)
        both = stored.neighbours + [systems.Neighbour(entries + n.entry, n.token, n.distance - louder) for n in heard]
        best = sorted(both, key=lambda neighbour: neighbour.distance)[: s.k]
        nearest = min([stored.nearest, *(near.distance for near in heard)])
        return systems.Found(best, nearest) if best else systems.NOTHING

    return find


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
        oracle = together(system, arrays, len(case.arrays["target_ids"]))
        assert_same(store, case, chosen, oracle=oracle)


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
