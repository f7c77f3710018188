"""Segments that are left out are found by no system: each answers as the oracle does on a store without them."""

import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from knnmt.retrieval.session import Retriever
from knnmt.systems.settings import RetrievalSettings

from ..oracle import systems
from ..oracle.datastore import Store, offsets
from .examples import CPU, ORACLE, Case, assert_same, some_segments


def without(arrays: Store, removed: NDArray[np.bool_]) -> Store:
    """The arrays less the links and the ranks of these entries; what is behind them moves up, centroids stay."""
    kept = {}
    for name, others in (("link", ()), ("ranking", ("tokens", "distances"))):
        there = ~removed[arrays[f"{name}_entries"]]
        bounds = arrays[f"{name}_offsets"]
        kept[f"{name}_offsets"] = offsets(int(there[a:b].sum()) for a, b in pairwise(bounds))
        for what in ("entries", *others):
            kept[f"{name}_{what}"] = arrays[f"{name}_{what}"][there]
    return arrays | kept


def oracle(system: str, removed: NDArray[np.bool_]) -> Any:
    if system != "knn":
        return ORACLE[system]
    seen = set(np.flatnonzero(~removed).tolist())
    return lambda store, ids, states, state, s: systems.exact(store, seen, state, s, s.k)


@given(
    seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.1, 0.5, 0.9]), k=st.sampled_from([1, 2, 7]),
    probe=st.sampled_from([1, 2]), adapt=st.sampled_from(["constant", "distance"]),
)  # fmt: skip
@settings(max_examples=40, deadline=None)
def test_every_system_answers_as_if_entries_that_are_left_out_had_never_been_linked(
    seed: int, share: float, k: int, probe: int, adapt: Any
) -> None:
    case = Case.drawn(seed)
    left_out, removed = some_segments(case.arrays["target_offsets"], share, seed)
    plain = RetrievalSettings(k=k, c=2, temperature=1.5, weight=0.7, adapt=adapt, reach=4.0)
    with tempfile.TemporaryDirectory() as folder:
        store = case.write(Path(folder) / "store")
        arrays = without(case.arrays, removed)
        for system in ORACLE:
            chosen = plain.model_copy(update={"system": system, "probe": probe if system == "faster" else 1})
            assert_same(store, case, chosen, arrays, left_out, oracle=oracle(system, removed))
            retriever = Retriever(store, CPU, chosen, left_out=left_out)
            entries = case.found(retriever).entries
            assert not removed[entries[entries >= 0].numpy()].any()
            # a retriever that shares the tensors leaves the same out
            shared = Retriever(store, CPU, chosen, live=retriever.live)
            assert (case.found(shared).entries == entries).all()


@pytest.mark.parametrize("system", ORACLE)
def test_with_everything_left_out_each_system_is_base_mt(tmp_path: Path, system: str) -> None:
    case = Case.drawn(1)
    left_out = range(len(case.arrays["target_offsets"]) - 1)
    chosen = RetrievalSettings(system=system, k=3, temperature=1.0, weight=0.9, adapt="constant")
    retriever = Retriever(case.write(tmp_path / "store"), CPU, chosen, left_out=left_out)
    assert (case.found(retriever).entries == -1).all()
    np.testing.assert_allclose(case.mixed(retriever), case.p_mt, rtol=1e-5)
