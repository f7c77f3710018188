"""What was taught is found by every system: each answers as the oracle does on the part and the lessons together."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.corpus.segment import Segment as Text
from knnmt.datastore import Datastore
from knnmt.model.transformer import States
from knnmt.retrieval import lessons as taught_rule
from knnmt.retrieval.session import Retriever, Sources
from knnmt.settings import Metric
from knnmt.store.lessons import Lesson, LessonStates, Record
from knnmt.systems.settings import RetrievalSettings

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
    text = Text(f"source {name}", f"target {name}", "a test", name)
    return Lesson(text, source_ids, target_ids, links, LessonStates(states, keys))


def teach(store: Datastore, *lessons: Lesson) -> None:
    with store.writing():
        store._write(Record(taught=lessons))


def sources(case: Case, retriever: Retriever) -> Sources:
    """Where the probabilities of all decoder states come from."""
    states, logits = States(*2 * [torch.from_numpy(case.states)]), torch.from_numpy(np.log(case.p_mt)).float()
    found: Sources = case.look(retriever).sources(states, logits, torch.zeros(logits.shape[:2]))
    return found


def drawn(seed: int, metric: Metric) -> tuple[Case, list[Segment]]:
    """A store, sentences to look up in it, and segments to teach it."""
    rng = np.random.default_rng(seed)
    case = Case.drawn(seed, metric)
    return case, datastore.random_segments(rng, count=3, width=2)


class Expected(NamedTuple):
    """What the oracle finds in the part and among the lessons, and the distribution that comes of both."""

    entries: set[int]
    weight: float
    p: Any


def expected(
    system: str, case: Case, segments: list[Segment], row: int, beam: int, s: systems.Settings, scale: float
) -> Expected:
    """Lessons that have most of a sentence's words are heard where they are much nearer than anything in the part, with
    a weight of their own."""
    one_cluster = dict.fromkeys(datastore.random_clusters(np.random.default_rng(0), segments), 0)  # in corpus order
    taught = datastore.build(segments, one_cluster, VOCABULARY, K_MAX, metric=case.metric)
    lesson_of = [lesson for lesson in segments for _ in lesson.target_ids]
    about = case.ids[row], case.source[row], case.states[row, beam]
    stored = ORACLE[system](case.arrays, *about, s)
    own = replace(s, k=1000, c=taught_rule.C, temperature=taught_rule.TEMPERATURE * scale)
    limit = taught_rule.MUCH_NEARER * stored.nearest + taught_rule.SAME * scale
    agreed = [
        near
        for near in ORACLE["fast"](taught, *about, own).neighbours
        if np.mean([kind in lesson_of[near.entry].source_ids for kind in case.ids[row]]) >= taught_rule.AGREED
    ]
    heard = [near for near in agreed[: taught_rule.K] if near.distance <= limit]
    nearest = min((near.distance for near in heard), default=np.inf)
    lessons = taught_rule.WEIGHT * max(0.0, 1.0 - nearest / (taught_rule.REACH * scale))
    p = systems.mixed(case.p_mt[row, beam], stored, s)
    if lessons:
        p = lessons * systems.distribution(systems.Found(heard, nearest), own, VOCABULARY) + (1 - lessons) * p
    first = len(case.arrays["target_ids"])
    entries = {near.entry for near in stored.neighbours} | {first + near.entry for near in heard if lessons}
    return Expected(entries, 1 - (1 - lessons) * (1 - systems.weight_of(stored, s)), p)


@given(
    seed=st.integers(0, 2**32 - 1), k=st.sampled_from([1, 3, 7]), c=st.sampled_from([1, 3]),
    metric=st.sampled_from(["squared", "euclidean", "cosine"]), adapt=st.sampled_from(["constant", "distance"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_every_system_finds_lessons_beside_what_is_stored(
    seed: int, k: int, c: int, metric: Metric, adapt: Any
) -> None:
    case, segments = drawn(seed, metric)
    plain = RetrievalSettings(k=k, c=c, temperature=1.5, weight=0.7, adapt=adapt, reach=4.0)
    with tempfile.TemporaryDirectory() as folder:
        store = case.write(Path(folder) / "store")
        teach(store, *(lesson(segment, str(number), metric) for number, segment in enumerate(segments)))
        for system in ORACLE:
            assert_heard(store, case, segments, plain.model_copy(update={"system": system}))


def assert_heard(store: Datastore, case: Case, segments: list[Segment], chosen: RetrievalSettings) -> None:
    """A system finds and mixes what the oracle does, and tells what it mixed."""
    retriever, wanted = Retriever(store, CPU, chosen), oracle_settings(chosen, case.metric)
    ours, found = case.mixed(retriever), sources(case, retriever)
    for row in range(len(case.ids)):
        for beam in range(case.states.shape[1]):
            truth = expected(chosen.system, case, segments, row, beam, wanted, retriever.live.view.scale)
            np.testing.assert_allclose(ours[row, beam], truth.p, atol=1e-5)
            if case.metric == "squared":
                there = found.entries[row, beam][found.shares[row, beam] > 1e-9]
                assert set(there.tolist()) - {-1} <= truth.entries
            # what evidence shows adds up to the same
            weight = found.weight[row, beam]
            assert weight == pytest.approx(truth.weight, abs=1e-5)
            p_knn = torch.zeros(VOCABULARY).index_add_(0, found.tokens[row, beam], found.shares[row, beam])
            shown = weight * p_knn + (1 - weight) * torch.from_numpy(case.p_mt[row, beam])
            np.testing.assert_allclose(shown.numpy(), truth.p, atol=1e-5)


@pytest.mark.parametrize("system", ORACLE)
@pytest.mark.parametrize("weight", [0.0, 1e-6, 0.3])
def test_a_lesson_of_the_very_state_outranks_every_weight_but_0(tmp_path: Path, system: str, weight: float) -> None:
    case, segments = drawn(11, "squared")
    store = case.write(tmp_path / "store")
    taught = segments[0]
    while not taught.links:
        taught = datastore.random_segments(np.random.default_rng(12), count=1, width=2)[0]
    _, target = taught.links[0]
    asked = replace(
        case.alone(0).saying([taught.source_ids], [taught.source_states]),
        states=np.asarray(taught.target_states, np.float32)[None, [target]], p_mt=case.p_mt[:1, :1],
    )  # fmt: skip
    chosen = RetrievalSettings(system=system, k=1, c=1, temperature=1.0, weight=weight, adapt="constant")
    before = asked.mixed(Retriever(store, CPU, chosen))
    teach(store, lesson(taught, "a", "squared"))
    after = asked.mixed(Retriever(store, CPU, chosen))
    if weight == 0:
        np.testing.assert_array_equal(after, before)  # base MT, to the bit
    else:
        assert after[0, 0, taught.target_ids[target]] > 0.9


@pytest.mark.parametrize("system", [*ORACLE])
def test_a_retriever_sees_at_once_what_is_taught_and_what_is_removed(tmp_path: Path, system: str) -> None:
    case, segments = drawn(4, "squared")
    store = case.write(tmp_path / "store")
    chosen = RetrievalSettings(system=system, k=7, c=9, temperature=1.0, weight=0.5, adapt="constant")
    retriever = Retriever(store, CPU, chosen)
    before = sources(case, retriever)
    teach(store, lesson(segments[0], "a", "squared"), lesson(segments[1], "b", "squared"))
    teach(store, lesson(segments[2], "c", "squared"))
    entries = len(case.arrays["target_ids"])
    with_all = sources(case, retriever).entries
    assert (with_all >= entries).any()
    assert (with_all < entries + sum(len(segment.target_ids) for segment in segments)).all()
    assert store.remove(["b", "a", "none"]) == ["b", "a"]
    left = sources(case, retriever).entries
    first = entries + len(segments[0].target_ids) + len(segments[1].target_ids)
    assert not ((left >= entries) & (left < first)).any()
    store.remove(["c"])
    after = sources(case, retriever)
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


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
    found = sources(case, Retriever(store, CPU, chosen)).entries
    assert found.max() < len(case.arrays["target_ids"])
    for row in found.flatten(0, 1).tolist():
        there = [entry for entry in row if entry >= 0]
        assert len(set(there)) == len(there)


def test_nothing_taught_costs_nothing(tmp_path: Path) -> None:
    case = Case.drawn(6)
    retriever = Retriever(case.write(tmp_path / "store"), CPU, RetrievalSettings(system="fast", temperature=1.0))
    assert type(case.look(retriever).lookup).__name__ == "Nearest"
