"""The system `similar` against the oracle: what a sentence sees by word and by segment, and what it finds there."""

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from knnmt.retrieval.session import Retriever
from knnmt.search import backend, compiled_softmax
from knnmt.search.matches import ALIKE, Asked, Index, Limits, PartIndex
from knnmt.search.mix import merge
from knnmt.settings import Metric
from knnmt.systems import similar as system
from knnmt.systems.settings import RetrievalSettings

from ..oracle import similar, systems
from .examples import CPU, CUDA, Case, oracle_settings, some_segments, with_threads
from .test_prototypes import off_grid

pytestmark = pytest.mark.usefixtures("way")


def drawn(seed: int, metric: Metric = "squared", width: int = 8, batch: int = 3) -> Case:
    """A random case whose store has narrow keys; its states are nowhere equally far."""
    case = off_grid(Case.drawn(seed, metric, width=width, batch=batch), seed)
    rng = np.random.default_rng(seed)
    arrays = dict(case.arrays)
    for side in ("source", "target"):  # no two keys of a store that is not made by hand are the same
        noise = rng.normal(scale=0.1, size=arrays[f"{side}_keys"].shape)
        arrays[f"{side}_keys"] = (arrays[f"{side}_keys"] + noise).astype(np.float16)
    matrices = {
        side: np.linalg.qr(rng.normal(size=(width, size)))[0].astype(np.float32)
        for side, size in (("source", min(width, 4)), ("target", min(width, 4 + seed % 3)))
    }
    return replace(case, arrays=arrays | similar.gathered(arrays, matrices))


def shares(tokens: torch.Tensor, log_p: torch.Tensor) -> dict[int, float]:
    """The tokens that have a share in p_kNN worth speaking of."""
    listed = zip(tokens.tolist(), log_p.exp().tolist(), strict=True)
    return {token: p for token, p in listed if p > 1e-5}


def limited(limits: similar.Limits) -> Any:
    """The system, bound by these limits."""
    named: dict[str, Any] = {
        "BEST": limits.best, "OFFERED": limits.offered, "COMMON": limits.common, "WORK": limits.work,
        "LIKENESS": limits.alike, "BY_STATE": limits.by_state, "TAKEN": limits.taken[0], "LEAST": limits.taken[1],
        "SHY": 1.0,
    }  # fmt: skip
    return patch.multiple(system, **named)


def assert_as_oracle(
    case: Case,
    chosen: RetrievalSettings,
    limits: similar.Limits,
    left_out: frozenset[int] = frozenset(),
    device: str = "cpu",
) -> None:
    wanted = oracle_settings(chosen, case.metric)
    offsets = case.arrays["target_offsets"]
    removed = np.isin(np.arange(len(offsets) - 1), list(left_out)).repeat(np.diff(offsets))
    with tempfile.TemporaryDirectory() as folder, limited(limits):
        store = case.write(Path(folder) / "store")
        retriever = Retriever(store, torch.device(device), chosen, left_out=left_out)
        limits = replace(limits, farther=system.FARTHER * retriever.live.view.typical)
        ours, found = case.mixed(retriever), case.found(retriever)
    for row in range(len(case.ids)):
        for beam in range(case.states.shape[1]):
            state = case.states[row, beam]
            truth = similar.similar(case.arrays, case.ids[row], case.source[row], state, wanted, limits, removed)
            entries = found.entries[row, beam]
            assert entries[entries >= 0].tolist() == [neighbour.entry for neighbour in truth.neighbours]
            p = systems.mixed(case.p_mt[row, beam], truth, wanted)
            np.testing.assert_allclose(ours[row, beam], p, atol=1e-5)


@pytest.mark.parametrize("device", ["cpu", CUDA])
@given(
    seed=st.integers(0, 2**32 - 1), metric=st.sampled_from(["squared", "euclidean", "cosine"]),
    c=st.sampled_from([None, 1, 2, 50]), segments=st.sampled_from([0, 1, 3]), best=st.sampled_from([1, 3, 64]),
    offered=st.sampled_from([1, 3, 64]), work=st.sampled_from([1, 4, 1000]),
    common=st.sampled_from([(1000, 0.25), (1, 0.4)]),
    adapt=st.sampled_from(["constant", "distance"]), weight=st.sampled_from([0.0, 0.3, 0.9]),
)  # fmt: skip
@settings(max_examples=80, deadline=None)
def test_a_sentence_sees_and_a_state_finds_what_the_oracle_does(
    device: str, seed: int, metric: Metric, c: int | None, segments: int, best: int, offered: int, common: Any,
    work: int, adapt: Any, weight: float,
) -> None:  # fmt: skip
    chosen = RetrievalSettings(
        system="similar", c=c, segments=segments, temperature=1.5, weight=weight, adapt=adapt, reach=4.0
    )
    limits = similar.Limits(segments, best, offered, common, work, taken=(6, 1))
    assert_as_oracle(drawn(seed, metric), chosen, limits, device=device)


@given(seed=st.integers(0, 2**32 - 1), share=st.sampled_from([0.2, 0.9]))
@settings(max_examples=40, deadline=None)
def test_segments_left_out_are_not_found_and_take_no_room(seed: int, share: float) -> None:
    case = drawn(seed)
    left_out, _ = some_segments(case.arrays["target_offsets"], share, seed)
    chosen = RetrievalSettings(system="similar", c=2, segments=1, temperature=1.5, reach=4.0)
    assert_as_oracle(case, chosen, similar.Limits(segments=1, best=2, offered=2), left_out)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_the_distribution_is_the_softmax_of_what_was_found(seed: int) -> None:
    case = drawn(seed, batch=4)
    with tempfile.TemporaryDirectory() as folder:
        retriever = Retriever(case.write(Path(folder) / "store"), CPU, RetrievalSettings(system="similar"))
        look, states = case.look(retriever), torch.from_numpy(case.states)
        found, neighbours = look.lookup.find(states), look.lookup.neighbours(states)
    for row in range(len(case.ids)):  # a token is written once, or the same more often
        pairs = set(zip(neighbours.tokens[row, 0].tolist(), neighbours.log_p[row, 0].tolist(), strict=True))
        assert len(pairs) == len({token for token, _ in pairs})
    tokens, log_p = merge(found.tokens, found.scores(look.lookup.temperature))
    for row in range(len(case.ids)):
        ours, truth = shares(neighbours.tokens[row, 0], neighbours.log_p[row, 0]), shares(tokens[row, 0], log_p[row, 0])
        there = found.entries[row, 0] >= 0
        assert bool(there.any()) == bool(ours)
        assert all(ours.get(token, 0.0) == pytest.approx(truth.get(token, 0.0), abs=2e-5) for token in {*ours, *truth})


def test_a_sentence_finds_the_same_in_any_batch(tmp_path: Path) -> None:
    case = drawn(3, batch=5)
    retriever = Retriever(case.write(tmp_path / "store"), CPU, RetrievalSettings(system="similar", c=2, segments=1))
    together = case.mixed(retriever)
    for row in range(len(case.ids)):
        np.testing.assert_allclose(case.alone(row).mixed(retriever)[0], together[row], atol=1e-6)


def test_several_threads_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = drawn(3, batch=5)
    retriever = Retriever(case.write(tmp_path / "store"), CPU, RetrievalSettings(system="similar"))
    look, states = case.look(retriever), torch.from_numpy(case.states)
    alone = look.lookup.neighbours(states)
    monkeypatch.setattr(compiled_softmax, "WORTH", 1)
    with with_threads(3):
        together = look.lookup.neighbours(states)
    for ours, theirs in zip(together[:3], alone[:3], strict=True):
        assert torch.equal(ours, theirs)


def test_sentences_that_stay_find_what_they_found_before(tmp_path: Path) -> None:
    case = drawn(1, batch=4)
    retriever = Retriever(case.write(tmp_path / "store"), CPU, RetrievalSettings(system="similar"))
    look, states = case.look(retriever), torch.from_numpy(case.states)
    before = look.lookup.neighbours(states)
    look.keep(torch.tensor([1, 3]))
    after = look.lookup.neighbours(states[[1, 3]])
    torch.testing.assert_close(after.nearest, before.nearest[[1, 3]])
    for now, then in ((0, 1), (1, 3)):
        for beam in range(states.size(1)):
            assert shares(after.tokens[now, beam], after.log_p[now, beam]) == pytest.approx(
                shares(before.tokens[then, beam], before.log_p[then, beam]), abs=1e-5
            )


def test_no_number_of_neighbours_changes_anything(tmp_path: Path) -> None:
    case = drawn(2)
    store = case.write(tmp_path / "store")
    few, many = (case.mixed(Retriever(store, CPU, RetrievalSettings(system="similar", k=k))) for k in (1, 64))
    np.testing.assert_array_equal(few, many)


def test_a_sentence_needs_no_memory_for_segments_that_it_does_not_come_across() -> None:
    """A part far behind 2^30 other segments: a score for each of those would take gigabytes."""
    far, kind = 1 << 30, torch.tensor([0, 1])
    part = PartIndex(
        segments=torch.tensor([0, 1, 1], dtype=torch.int32), shares=torch.tensor([5, 3, 4], dtype=torch.int16),
        states=torch.tensor([[1, 2], [3, 4], [9, 9]], dtype=torch.int8), starts=torch.tensor([0, 1, 3]),
        tokens=torch.tensor([0, 1, 2], dtype=torch.int32), first_token=0, first_segment=far,
    )  # fmt: skip
    sizes = torch.tensor([[2], [1]])
    asked = Asked(
        sentence=torch.zeros(2, dtype=torch.int64), kind=kind, states=[torch.tensor([[3.0, 3.0], [9.0, 9.0]])],
        step=[1.0], owner=torch.zeros(2, dtype=torch.int64), starts=torch.tensor([[0], [2]]), sizes=sizes,
        walked=torch.tensor([[1], [1]]), told=torch.tensor([True, True]),
    )  # fmt: skip
    one = torch.ones(1, dtype=torch.int64)
    found = backend(CPU).match(Index([part], 3, far + 2, None), asked, Limits(2, 4, one, one, 2.0))
    # token 1 was not walked, but counts: segment 1 has 3 + 4 and is better than segment 0, which has 5
    assert found.segments.tolist() == [[far + 1, far]]
    assert [set(row) for row in found.tokens.tolist()] == [{1}, {2}]
    assert found.segments_alike.tolist() == [[ALIKE, round(5 / 7 * ALIKE)]]
    assert found.tokens_alike.tolist() == [[ALIKE, ALIKE], [ALIKE, ALIKE]]


def test_short_sentences_take_more_for_each_token() -> None:
    assert system._suited(torch.tensor([1, 10, 30, 200])).tolist() == [120, 12, 6, 6]


def test_long_sentences_reach_farther_in_a_large_store() -> None:
    lengths = torch.tensor([1, 10, 20, 30, 200])
    assert system._stretch(lengths, 10_000).tolist() == pytest.approx([1.0, 1.0, 1.5, 2.0, 2.0])
    assert torch.equal(system._stretch(lengths, 99_999), system._stretch(lengths, 10_000))
    assert system._stretch(lengths, 6_000).tolist() == pytest.approx([0.875 * x for x in (1.0, 1.0, 1.25, 1.5, 1.5)])
    assert system._stretch(lengths, 2_000).tolist() == [0.75] * 5


def test_λ_of_a_long_sentence_falls_more_slowly_in_any_batch_and_after_others_left(tmp_path: Path) -> None:
    case = drawn(5, batch=4)
    chosen = RetrievalSettings(system="similar", temperature=1.5, weight=0.8, reach=30.0)
    retriever = Retriever(case.write(tmp_path / "store"), CPU, chosen)
    states, logits = torch.from_numpy(case.states), torch.zeros(4, 2, 3)

    def weight(look: Any, states: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = look.weight(look.lookup.neighbours(states), logits, logits[:, :, 0])
        return found

    with patch.multiple(system, SHORT=1, LONG=5, STRETCH=3.0, SMALL=0, LARGE=1):
        look = case.look(retriever)
        found, stretch = look.lookup.find(states), system._stretch(torch.tensor([len(ids) for ids in case.ids]), 9)
        wanted = (0.8 * (1.0 - found.nearest / (30.0 * stretch[:, None]))).clamp(0.0, 0.8)
        assert len(stretch.unique()) > 1
        torch.testing.assert_close(weight(look, states), wanted)
        alone = torch.cat([weight(case.alone(row).look(retriever), states[row : row + 1]) for row in range(4)])
        torch.testing.assert_close(alone, wanted)
        look.keep(torch.tensor([1, 3]))
        torch.testing.assert_close(weight(look, states[[1, 3]]), wanted[[1, 3]])
