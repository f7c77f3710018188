"""Every system against the oracle, on random stores: the same entries, the same distribution, whatever the batch."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.datastore.format import Metric
from knnmt.datastore.store import Datastore
from knnmt.model.transformer import States
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.retrieval.systems import SYSTEMS, Retriever

from ..datastore.examples import written
from ..oracle import datastore, systems

VOCABULARY, K_MAX = 5, 7
ORACLE: dict[str, Any] = {
    "knn": lambda store, ids, states, state, s: systems.knn(store, state, s),
    "fast": systems.fast,
    "fast-clustered": systems.fast_clustered,
    "faster": systems.faster,
    "faster-exact": systems.faster_exact,
}


class Case:
    """A random store, a ragged batch of sentences and some decoder states for each."""

    def __init__(self, seed: int, metric: Metric, batch: int, beams: int, width: int) -> None:
        rng = np.random.default_rng(seed)
        segments = datastore.random_segments(rng, width=width)
        assign = datastore.random_clusters(rng, segments)
        self.arrays = datastore.build(segments, assign, VOCABULARY, K_MAX, metric=metric)
        sentences = [datastore.random_sentence(rng, width=width) for _ in range(batch)]
        self.ids, self.source = [list(ids) for ids, _ in sentences], [states for _, states in sentences]
        self.states = np.stack([datastore.random_states(rng, beams, width) for _ in range(batch)])
        self.p_mt = rng.dirichlet(np.ones(VOCABULARY), (batch, beams))
        self.width, self.metric = width, metric

    def padded(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        longest = max(map(len, self.ids))
        ids = torch.zeros((len(self.ids), longest), dtype=torch.int64)
        mask = torch.zeros_like(ids, dtype=torch.bool)
        states = torch.zeros((*ids.shape, self.width))
        for row, (some, vectors) in enumerate(zip(self.ids, self.source, strict=True)):
            ids[row, : len(some)], mask[row, : len(some)] = torch.tensor(some), True
            states[row, : len(some)] = torch.from_numpy(np.asarray(vectors, np.float32))
        return ids, mask, states


def mixed_by(retriever: Retriever, case: Case) -> tuple[np.ndarray, Any]:
    """What the system makes of p_MT, (B, K, V), and what it finds."""
    look = retriever.look(*case.padded())
    states = torch.from_numpy(case.states)
    logits = torch.from_numpy(np.log(case.p_mt)).float() + 3.0  # a normaliser that is not 0
    normaliser = look.mix(States(states, states), logits, torch.full(case.p_mt.shape[:2], 3.0))
    return (logits - normaliser[:, :, None]).exp().numpy(), look.lookup.find(look.tensors.query(states))


def assert_same(store: Datastore, case: Case, chosen: RetrievalSettings, oracle_store: datastore.Store) -> None:
    retriever = Retriever(store, torch.device("cpu"), chosen)
    ours, found = mixed_by(retriever, case)
    wanted = systems.Settings(
        k=chosen.k, c=chosen.c, temperature=chosen.temperature or 1.0, lam=chosen.weight, lam_max=chosen.weight,
        tau=chosen.reach if chosen.adapt == "distance" else None, metric=case.metric, probe=chosen.probe,
    )  # fmt: skip
    for row in range(len(case.ids)):
        for beam in range(case.states.shape[1]):
            truth = ORACLE[chosen.system](oracle_store, case.ids[row], case.source[row], case.states[row, beam], wanted)
            there = found.entries[row, beam] >= 0
            if case.metric == "squared":
                entries = found.entries[row, beam][there].tolist()
                assert entries == [neighbour.entry for neighbour in truth.neighbours]
            p = systems.mixed(case.p_mt[row, beam], truth, wanted)
            np.testing.assert_allclose(ours[row, beam], p, atol=1e-5)


@pytest.mark.parametrize("system", SYSTEMS)
@given(
    seed=st.integers(0, 2**32 - 1), metric=st.sampled_from(["squared", "euclidean", "cosine"]),
    k=st.sampled_from([1, 2, 3, 7]), c=st.sampled_from([1, 2, 5]), adapt=st.sampled_from(["constant", "distance"]),
    probe=st.sampled_from([1, 2, 3]), batch=st.integers(1, 4), beams=st.integers(1, 3),
    weight=st.sampled_from([0.0, 0.3, 0.9]),
)  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_a_system_gives_the_oracles_distribution(
    system: str,
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
    case = Case(seed, metric, batch, beams, width=2)
    chosen = RetrievalSettings(
        system=system, k=k, c=c, temperature=1.5, weight=weight, adapt=adapt, reach=4.0,
        probe=probe if system == "faster" else 1,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        store = written(case.arrays, Path(folder) / "store", vocabulary=VOCABULARY, k_max=K_MAX, metric=metric)
        assert_same(store, case, chosen, case.arrays)
