"""The system of prototypes against the oracle: what a sentence sees of them, and how they are scored."""

import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from knnmt.retrieval.session import Retriever
from knnmt.settings import Metric
from knnmt.systems.settings import RetrievalSettings

from ..oracle import prototypes, systems
from .examples import CPU, Case, oracle_settings, some_segments


def off_grid(case: Case, seed: int) -> Case:
    """The case with states that are nowhere equally far: means in bytes have no exact ties to compare."""
    rng = np.random.default_rng(seed)
    source = [np.asarray(states, np.float32) + rng.normal(scale=0.2, size=np.shape(states)) for states in case.source]
    states = case.states + rng.normal(scale=0.2, size=case.states.shape).astype(np.float32)
    return replace(case, source=[some.astype(np.float32) for some in source], states=states)


@given(
    seed=st.integers(0, 2**32 - 1), metric=st.sampled_from(["squared", "euclidean", "cosine"]),
    k=st.sampled_from([1, 3, 50]), c=st.sampled_from([1, 2, 50]), adapt=st.sampled_from(["constant", "distance"]),
    parts=st.sampled_from([1, 2, 100]), weight=st.sampled_from([0.0, 0.3, 0.9]), width=st.sampled_from([2, 8]),
)  # fmt: skip
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.filter_too_much])
def test_prototypes_give_the_oracles_distribution(
    seed: int, metric: Metric, k: int, c: int, adapt: Any, parts: int, weight: float, width: int
) -> None:
    case = off_grid(Case.drawn(seed, metric, width=width), seed)
    arrays = case.arrays | prototypes.gathered(case.arrays, parts)
    if c < 50:  # a token with two links makes prototypes whose source means are the same: a tie
        kinds = np.repeat(np.arange(len(arrays["proto_offsets"]) - 1), np.diff(arrays["proto_offsets"]))
        kept = np.column_stack((kinds, arrays["proto_source"]))
        assume(len(np.unique(kept, axis=0)) == len(kept))
    chosen = RetrievalSettings(system="proto", k=k, c=c, temperature=1.5, weight=weight, adapt=adapt, reach=4.0)
    wanted = oracle_settings(chosen, metric)
    with tempfile.TemporaryDirectory() as folder:
        retriever = Retriever(replace(case, arrays=arrays).write(Path(folder) / "store"), CPU, chosen)
        ours, found = case.mixed(retriever), case.found(retriever)
        for row in range(len(case.ids)):
            for beam in range(case.states.shape[1]):
                state = case.states[row, beam]
                truth = prototypes.proto(arrays, case.ids[row], case.source[row], state, wanted)
                there = found.entries[row, beam] >= 0
                assert found.entries[row, beam][there].tolist() == [n.entry for n in truth.neighbours]
                p = systems.mixed(case.p_mt[row, beam], truth, wanted)
                np.testing.assert_allclose(ours[row, beam], p, atol=1e-5)


@given(seed=st.integers(0, 2**32 - 1), parts=st.sampled_from([1, 2]))
@settings(max_examples=30, deadline=None)
def test_a_prototype_that_lost_an_entry_is_not_found(seed: int, parts: int) -> None:
    case = off_grid(Case.drawn(seed), seed)
    arrays = case.arrays | prototypes.gathered(case.arrays, parts)
    left_out, removed = some_segments(arrays["target_offsets"], 0.3, seed)
    chosen = RetrievalSettings(system="proto", k=100, c=100)
    starts = np.cumsum([0, *arrays["proto_counts"]])
    whole = [not removed[arrays["proto_members"][a:b]].any() for a, b in pairwise(starts)]
    allowed = {int(entry) for entry, kept in zip(arrays["proto_entries"][:, 0], whole, strict=True) if kept}
    with tempfile.TemporaryDirectory() as folder:
        store = replace(case, arrays=arrays).write(Path(folder) / "store")
        every = case.found(Retriever(store, CPU, chosen)).entries
        found = case.found(Retriever(store, CPU, chosen, left_out=left_out)).entries
    for row in range(len(found)):
        before, after = ({e for e in some[row, 0].tolist() if e >= 0} for some in (every, found))
        assert after <= allowed
        assert not {e for e in after if removed[e]}
        assert after <= before


def test_sentences_that_stay_find_what_they_found_before(tmp_path: Path) -> None:
    case = Case.drawn(1, batch=4)
    arrays = case.arrays | prototypes.gathered(case.arrays, 2)
    retriever = Retriever(
        replace(case, arrays=arrays).write(tmp_path / "store"), CPU, RetrievalSettings(system="proto")
    )
    look, states = case.look(retriever), torch.from_numpy(case.states)
    before = look.lookup.neighbours(states)
    look.keep(torch.tensor([1, 3]))
    after = look.lookup.neighbours(states[[1, 3]])
    for old, new in zip(before[:3], after[:3], strict=True):
        torch.testing.assert_close(new, old[[1, 3]])
