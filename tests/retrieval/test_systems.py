"""Every system against the oracle, on random stores: the same entries, the same distribution, whatever the batch."""

import tempfile
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.errors import StoreError, UsageError
from knnmt.model.checkpoint import load
from knnmt.model.transformer import States
from knnmt.retrieval.session import Retriever
from knnmt.settings import Metric
from knnmt.systems.settings import RetrievalSettings

from ..build.examples import written
from ..oracle import datastore
from .examples import BY_SOURCE, CPU, CUDA, ORACLE, UNSEEN, VOCABULARY, Case, assert_same, built, decoded

pytestmark = pytest.mark.usefixtures("way")

SEEDS = st.integers(0, 2**32 - 1)
METRICS: list[Metric] = ["squared", "euclidean", "cosine"]
PLAIN = RetrievalSettings(k=3, c=2, temperature=1.5, weight=0.6, adapt="constant", reach=4.0)


def choose(system: str, **changes: Any) -> RetrievalSettings:
    return PLAIN.model_copy(update={"system": system} | changes)


@given(
    seed=SEEDS, metric=st.sampled_from(METRICS),
    k=st.sampled_from([1, 2, 3, 7]), c=st.sampled_from([1, 2, 5]), adapt=st.sampled_from(["constant", "distance"]),
    probe=st.sampled_from([1, 2, 3]), batch=st.integers(1, 4), beams=st.integers(1, 3),
    weight=st.sampled_from([0.0, 0.3, 0.9]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_every_system_gives_the_oracles_distribution(
    seed: int,
    metric: Metric,
    k: int,
    c: int,
    adapt: Any,
    probe: int,
    batch: int,
    beams: int,
    weight: float,
) -> None:
    case = Case.drawn(seed, metric, batch, beams, summed=probe > 1)
    with tempfile.TemporaryDirectory() as folder:
        store = case.write(Path(folder) / "store")
        for system in ORACLE:
            probed = probe if system == "faster" else 1
            assert_same(store, case, choose(system, k=k, c=c, adapt=adapt, probe=probed, weight=weight))


@pytest.mark.parametrize("system", ["faster", "faster-exact"])
@pytest.mark.parametrize("metric", METRICS)
def test_without_a_k_the_whole_cluster_is_found(tmp_path: Path, system: str, metric: Metric) -> None:
    for seed in range(5):
        case = Case.drawn(seed, metric)
        store = case.write(tmp_path / f"store{seed}", k_max=None)
        assert_same(store, case, choose(system, k=None))
        if system == "faster":
            assert_same(store, case, choose(system, k=None, probe=2))


def test_a_k_beyond_all_there_is_finds_all_there_is(tmp_path: Path) -> None:
    for seed in range(5):
        case = Case.drawn(seed)
        store = case.write(tmp_path / f"store{seed}", k_max=None)
        for system in ORACLE:
            assert_same(store, case, choose(system, k=4096, c=4096))
        found = case.found(Retriever(store, CPU, choose("knn", k=4096)))
        assert found.entries.size(2) == len(case.arrays["target_ids"])


@pytest.mark.parametrize("metric", METRICS)
def test_quantized_keys_are_compared_as_what_they_stand_for(tmp_path: Path, metric: Metric) -> None:
    # 400 segments: far more values than the 256 centroids of a subspace, so that decoding changes keys
    rng = np.random.default_rng(7)
    segments = datastore.random_segments(rng, count=200)
    segments = [
        s._replace(source_states=rng.normal(size=s.source_states.shape), target_states=rng.normal(size=(m, 2)))
        for s in segments
        for m in [len(s.target_ids)]
    ]
    arrays = datastore.build(segments, datastore.random_clusters(rng, segments), VOCABULARY, 7, metric=metric)
    case = Case(
        arrays, metric, [[1, 2, 0], [3, 1, UNSEEN, 2, 0]], [rng.normal(size=(n, 2)) for n in (3, 5)],
        rng.normal(size=(2, 3, 2)).astype(np.float32), rng.dirichlet(np.ones(VOCABULARY), (2, 3)),
    )  # fmt: skip
    store = case.write(tmp_path / "store", quantized=True)
    keys = {f"{side}_keys": decoded(store, side) for side in ("target", "source")}
    changed = [np.abs(keys[name] - arrays[name]).max() for name in keys]
    assert min(changed) > 1e-3
    for system in ORACLE:
        assert_same(store, case, choose(system, k=7, c=9), arrays | keys)


@pytest.mark.parametrize("system", BY_SOURCE)
@pytest.mark.parametrize("adapt", ["constant", "distance"])
def test_a_sentence_of_unseen_tokens_is_base_mt_to_the_bit(tmp_path: Path, system: str, adapt: str) -> None:
    for seed in range(3):
        case = Case.drawn(seed, batch=2)
        case = case.saying([[UNSEEN, UNSEEN], [1, 2, 3]], [np.zeros((2, 2)), case.states[0, [0, 1, 0]]])
        look = case.look(Retriever(case.write(tmp_path / f"store{seed}"), CPU, choose(system, adapt=adapt)))
        logits = torch.from_numpy(np.log(case.p_mt)).float()
        before, states = logits.clone(), torch.from_numpy(case.states)
        normaliser = torch.full((2, 2), 0.125)
        after = look.mix(States(states, states), logits, normaliser)
        assert torch.equal(logits[0], before[0])
        assert torch.equal(after[0], normaliser[0])
        if adapt == "constant":  # and the other sentence of the batch is mixed
            assert (after[1] > normaliser[1]).all()


def test_a_repeated_token_changes_nothing_and_a_second_state_of_it_adds_its_own(tmp_path: Path) -> None:
    for seed in range(5):
        case = Case.drawn(seed, batch=3)
        one, other = np.random.default_rng(seed).choice([-1.0, 0.0, 1.0], (2, 2)) * datastore.UNIT
        case = case.saying([[1, 2], [1, 2, 2, 1, 1], [1, 2, 1]], [[one, one], [one] * 5, [one, one, other]])
        case = Case(
            case.arrays, case.metric, case.ids, case.source, np.repeat(case.states[:1], 3, axis=0), case.p_mt[[0, 0, 0]]
        )
        store = case.write(tmp_path / f"store{seed}")
        for system in BY_SOURCE:
            assert_same(store, case, choose(system))
            mixed = case.mixed(Retriever(store, CPU, choose(system)))
            np.testing.assert_array_equal(mixed[0], mixed[1])


@pytest.mark.parametrize("system", ORACLE)
@given(seed=SEEDS, adapt=st.sampled_from(["constant", "distance"]))
@settings(max_examples=10, deadline=None)
def test_a_batch_finds_what_each_sentence_finds_alone(system: str, seed: int, adapt: str) -> None:
    case = Case.drawn(seed, batch=5)
    with tempfile.TemporaryDirectory() as folder:
        retriever = Retriever(case.write(Path(folder) / "store"), CPU, choose(system, adapt=adapt))
        together, mixed = case.found(retriever), case.mixed(retriever)
        for row in range(5):
            alone = case.alone(row).found(retriever)
            for ours, theirs in zip(together[:4], alone[:4], strict=True):
                wide = ours[row].unsqueeze(-1) if ours.ndim == 2 else ours[row]
                there = theirs[0].unsqueeze(-1) if ours.ndim == 2 else theirs[0]
                count = min(wide.size(-1), there.size(-1))
                finite = together.distances[row, :, :count] < torch.inf if ours.ndim == 3 else slice(None)
                assert torch.equal(wide[:, :count][finite], there[:, :count][finite])
            np.testing.assert_allclose(case.alone(row).mixed(retriever)[0], mixed[row], atol=1e-6)


@pytest.mark.parametrize("system", ORACLE)
def test_sentences_that_stay_find_what_they_found_before(tmp_path: Path, system: str) -> None:
    cases = [Case.drawn(seed, batch=4) for seed in range(4)]
    stores = [case.write(tmp_path / f"store{seed}") for seed, case in enumerate(cases)]
    for (case, store), rows in product(zip(cases, stores, strict=True), ([0, 3], [1, 2], [2], [0, 1, 2, 3])):
        look = case.look(Retriever(store, CPU, choose(system)))
        states = look.view.query(torch.from_numpy(case.states))
        before, neighbours = look.lookup.find(states), look.lookup.neighbours(states)
        look.keep(torch.tensor(rows))
        for ours, theirs in zip(look.lookup.find(states[rows])[:4], before[:4], strict=True):
            assert torch.equal(ours, theirs[rows])
        for ours, theirs in zip(look.lookup.neighbours(states[rows])[:3], neighbours[:3], strict=True):
            assert torch.equal(ours, theirs[rows])
        look.keep(torch.tensor([len(rows) - 1]))  # and once more
        assert torch.equal(look.lookup.find(states[rows[-1:]]).entries, before.entries[rows[-1:]])


@pytest.mark.parametrize("system", ORACLE)
@pytest.mark.parametrize("device", [CUDA])
@pytest.mark.parametrize("metric", METRICS)
def test_a_gpu_finds_the_same(tmp_path: Path, system: str, device: str, metric: Metric) -> None:
    for seed in range(10):
        case = Case.drawn(seed, metric)
        assert_same(case.write(tmp_path / f"store{seed}"), case, choose(system, adapt="distance"), device=device)


# -------------------------------------------------------------------------------------------------------- refused


@pytest.mark.parametrize("system", ["knn", "fast", "fast-clustered"])
def test_no_k_is_refused_where_it_would_mean_the_whole_store(tmp_path: Path, system: str) -> None:
    store = Case.drawn(0).write(tmp_path / "store", k_max=None)
    with pytest.raises(UsageError, match=f"{system} needs a number of neighbours k"):
        Retriever(store, CPU, choose(system, k=None))


@pytest.mark.parametrize(("k", "asked"), [(8, "k=8"), (None, "all entries of a cluster")])
def test_a_k_beyond_the_rankings_is_refused(tmp_path: Path, k: int | None, asked: str) -> None:
    store = Case.drawn(0).write(tmp_path / "store")
    with pytest.raises(UsageError, match=f"ranks 7 entries per cluster, too few for {asked}: raise k_max"):
        Retriever(store, CPU, choose("faster", k=k))
    Retriever(store, CPU, choose("faster", k=7))
    Retriever(store, CPU, choose("faster-exact", k=k))  # which measures every member


def test_an_unknown_system_is_refused(tmp_path: Path) -> None:
    store = Case.drawn(0).write(tmp_path / "store")
    with pytest.raises(UsageError, match="no system 'fastest': use knn, fast"):
        Retriever(store, CPU, choose("fastest"))


@pytest.mark.parametrize(
    ("made_for", "asked", "lacking"),
    [
        ("faster", "fast", "type_offsets"),
        ("faster", "knn", "target_keys"),
        ("faster", "faster-exact", "cluster_starts"),
        ("knn", "fast", "type_offsets"),
        ("fast", "faster", "cluster_target"),
    ],
)
def test_a_store_without_what_a_system_needs_is_refused(
    tmp_path: Path, model_folder: Callable[[str], Path], made_for: str, asked: str, lacking: str
) -> None:
    model = load(model_folder("marian"), device="cpu")
    store = built(model, tmp_path, count=10, systems=(made_for,))
    ids, mask, states = Case.drawn(0).padded()
    with pytest.raises(StoreError, match=f"built without {lacking}, which {asked} needs: build"):
        Retriever(store, CPU, choose(asked))
    Retriever(store, CPU, choose(made_for)).look(ids + 5, mask, states.repeat(1, 1, 16))


def test_a_store_without_a_single_link_to_look_up_is_base_mt(tmp_path: Path) -> None:
    segment = datastore.Segment([1, 0], [1, 0], [(1, 1)], np.zeros((2, 2)), np.ones((2, 2)))
    store = written(datastore.build([segment], {(0, 1): 0}, 2, 7), tmp_path / "store", vocabulary=2)
    for system in BY_SOURCE:
        look = Retriever(store, CPU, choose(system)).look(
            torch.tensor([[1]]), torch.ones(1, 1, dtype=torch.bool), torch.zeros(1, 1, 2)
        )
        found = look.lookup.find(torch.zeros(1, 1, 2))
        assert (found.entries == -1).all()
        assert found.nearest.tolist() == [[float("inf")]]
