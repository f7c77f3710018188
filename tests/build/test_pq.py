"""Product quantization against plain loops: codes, what they stand for, and distances to them."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from knnmt.build import pq
from knnmt.errors import DataError, UsageError
from knnmt.search.pq import CENTROIDS, decode

Float32 = NDArray[np.float32]
Codes = NDArray[np.uint8]

SHAPES = st.tuples(st.integers(1, 5), st.integers(1, 4))  # subspaces, and the width of each


def nearest_by_loop(states: NDArray[Any], codebooks: Float32) -> Codes:
    subspaces, _, width = codebooks.shape
    codes = np.empty((len(states), subspaces), np.uint8)
    for row, state in enumerate(states.astype(np.float64)):
        for m in range(subspaces):
            part = state[m * width : (m + 1) * width]
            codes[row, m] = np.argmin([((part - centroid) ** 2).sum() for centroid in codebooks[m].astype(np.float64)])
    return codes


def decoded_by_loop(codes: Codes, codebooks: Float32) -> Float32:
    return np.array([np.concatenate([codebooks[m, code] for m, code in enumerate(row)]) for row in codes])


def encoded(states: NDArray[Any], codebooks: Float32, workers: int = 1) -> Codes:
    codes = np.full((len(states), len(codebooks)), 77, np.uint8)
    pq.encode(states, codebooks, codes, workers=workers)
    return codes


def error(states: NDArray[Any], codebooks: Float32) -> float:
    """Mean squared distance of states from what their codes stand for."""
    back = decode(torch.from_numpy(encoded(states, codebooks)), torch.from_numpy(codebooks)).numpy()
    return float(((states.astype(np.float64) - back) ** 2).sum(1).mean())


def some_states(count: int, d: int, seed: int = 0) -> NDArray[np.float16]:
    rng = np.random.default_rng(seed)
    return (rng.standard_normal((count, d)) @ rng.standard_normal((d, d)) + 3).astype(np.float16)


def some_codebooks(subspaces: int, width: int, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).standard_normal((subspaces, 256, width)).astype(np.float32)


@pytest.mark.parametrize(
    ("d", "parts"),
    [(1, 1), (64, 64), (127, 127), (131, 1), (256, 128), (300, 100), (512, 128), (768, 128), (1000, 125)],
)
def test_a_state_is_cut_into_as_many_equal_parts_as_128_bytes_allow(d: int, parts: int) -> None:
    assert pq.subspaces(d) == parts


def test_fewer_bytes_can_be_asked_for() -> None:
    assert pq.subspaces(256, most=48) == 32


@given(SHAPES, st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_code_is_the_first_of_the_nearest_centroids(shape: tuple[int, int], seed: int) -> None:
    # Small whole numbers: there are many ties, and all sums are exact in float32 too.
    rng = np.random.default_rng(seed)
    codebooks = rng.integers(-2, 3, (shape[0], 256, shape[1])).astype(np.float32)
    states = rng.integers(-3, 4, (9, shape[0] * shape[1])).astype(np.float16)
    assert np.array_equal(encoded(states, codebooks), nearest_by_loop(states, codebooks))


@given(SHAPES, st.sampled_from([0.0, 10.0, 1000.0]), st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_code_is_nearest_far_from_the_origin_too(shape: tuple[int, int], offset: float, seed: int) -> None:
    codebooks = some_codebooks(*shape, seed) + np.float32(offset)
    rng = np.random.default_rng(seed)
    states = (rng.standard_normal((20, shape[0] * shape[1])) + offset).astype(np.float32)
    ours = decoded_by_loop(encoded(states, codebooks), codebooks).astype(np.float64)
    best = decoded_by_loop(nearest_by_loop(states, codebooks), codebooks).astype(np.float64)
    np.testing.assert_allclose(((states - ours) ** 2).sum(1), ((states - best) ** 2).sum(1), rtol=1e-4, atol=1e-5)


def test_codes_do_not_depend_on_workers_or_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    states = some_states(3001, 24)
    codebooks = pq.train(states, subspaces=12, sample=1000, iterations=2)
    codes = encoded(states, codebooks)
    assert np.array_equal(encoded(states, codebooks, workers=3), codes)
    for task, block, report in ((64, 1 << 14, 128), (333, 1 << 12, 999), (4096, 1 << 22, 4096)):
        monkeypatch.setattr(pq, "TASK_SIZE", task)
        monkeypatch.setattr(pq, "BLOCK_SIZE", block)
        monkeypatch.setattr(pq, "REPORT_SIZE", report)
        assert np.array_equal(encoded(states, codebooks, workers=2), codes)
    assert np.array_equal(encoded(states[1234:], codebooks), codes[1234:])


def test_encoding_streams_from_one_memory_map_to_another_and_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pq, "REPORT_SIZE", 2048)
    np.save(tmp_path / "states.npy", some_states(5000, 8))
    states = np.load(tmp_path / "states.npy", mmap_mode="r")
    codebooks = pq.train(states, subspaces=4, sample=500, iterations=1)
    out = np.lib.format.open_memmap(tmp_path / "codes.npy", "w+", np.uint8, (5000, 4))
    done: list[int] = []
    pq.encode(states, codebooks, out, progress=done.append)
    out.flush()
    assert done == [2048, 2048, 904]
    assert np.array_equal(np.load(tmp_path / "codes.npy"), encoded(np.array(states), codebooks))


def test_encoding_leaves_the_number_of_threads_as_it_was() -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    seen: list[int] = []
    try:
        encoded(some_states(10, 4), some_codebooks(2, 2), workers=2)
        later = threading.Thread(target=lambda: seen.append(torch.get_num_threads()))
        later.start()
        later.join()
        assert (torch.get_num_threads(), seen) == (2, [2])
    finally:
        torch.set_num_threads(before)


def test_no_rows_give_no_codes() -> None:
    assert encoded(some_states(0, 4), some_codebooks(2, 2)).shape == (0, 2)


@given(SHAPES, st.lists(st.integers(0, 3), max_size=3), st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None)
def test_codes_of_any_shape_are_decoded(shape: tuple[int, int], lead: list[int], seed: int) -> None:
    codebooks = some_codebooks(*shape, seed)
    codes = np.random.default_rng(seed).integers(0, 256, (*lead, shape[0]), np.uint8)
    states = decode(torch.from_numpy(codes), torch.from_numpy(codebooks))
    assert states.shape == (*lead, shape[0] * shape[1])
    flat = states.reshape(-1, shape[0] * shape[1]).numpy()
    for state, code in zip(flat, codes.reshape(-1, shape[0]), strict=True):
        assert np.array_equal(state, decoded_by_loop(code[None], codebooks)[0])


def test_training_is_the_same_each_time_and_reads_only_its_sample() -> None:
    class Counted(np.ndarray[Any, Any]):
        read = 0

        def __getitem__(self, key: Any) -> Any:
            rows = np.asarray(super().__getitem__(key))
            Counted.read += len(rows)
            return rows

    states = some_states(2000, 12)
    first = pq.train(states.view(Counted), subspaces=6, sample=400, iterations=3, seed=5)
    assert Counted.read == 400
    assert first.shape == (6, 256, 2)
    assert first.dtype == np.float32
    assert np.array_equal(pq.train(states, subspaces=6, sample=400, iterations=3, seed=5), first)
    assert not np.array_equal(pq.train(states, subspaces=6, sample=400, iterations=3, seed=6), first)


def test_training_does_not_depend_on_how_subspaces_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    states = some_states(1500, 20)
    codebooks = pq.train(states, subspaces=10, iterations=2)
    monkeypatch.setattr(pq, "GROUP_SIZE", 3)
    np.testing.assert_allclose(pq.train(states, subspaces=10, iterations=2), codebooks, atol=1e-3)


def test_training_beats_rows_drawn_at_random_and_gets_better() -> None:
    states = some_states(6000, 16)
    drawn = states[np.random.default_rng(0).choice(6000, 256, replace=False)]
    random = drawn.astype(np.float32).reshape(256, 8, 2).transpose(1, 0, 2).copy()
    seeded = error(states, pq.train(states, subspaces=8, iterations=0))
    trained = error(states, pq.train(states, subspaces=8))
    assert trained < 0.8 * seeded
    assert trained < 0.6 * error(states, random)


def test_centroids_are_the_means_of_their_parts() -> None:
    states = some_states(1000, 3)
    before = pq.train(states, subspaces=1, iterations=3)
    after = pq.train(states, subspaces=1, iterations=4)
    codes = nearest_by_loop(states, before)[:, 0]
    for code in np.unique(codes):
        np.testing.assert_allclose(after[0, code], states[codes == code].astype(np.float64).mean(0), rtol=1e-5)


@pytest.mark.parametrize("count", [1, 2, 100, 256])
def test_few_rows_are_kept_exactly(count: int) -> None:
    states = some_states(count, 12)
    assert error(states, pq.train(states, subspaces=6)) < 1e-9


def test_equal_rows_have_one_code() -> None:
    states = np.tile(some_states(1, 8), (3000, 1))
    codebooks = pq.train(states, subspaces=4)
    assert np.array_equal(encoded(states, codebooks), np.zeros((3000, 4), np.uint8))
    assert error(states, codebooks) == 0


def test_few_distinct_numbers_are_kept_exactly_however_rare() -> None:
    numbers = np.linspace(-4, 4, 200).astype(np.float16)
    rare = np.minimum(np.random.default_rng(0).geometric(0.05, (4000, 16)) - 1, 199)
    states = numbers[rare]
    assert error(states, pq.train(states, subspaces=16)) < 1e-9


def test_states_of_a_prime_number_of_numbers_are_a_single_part() -> None:
    states = some_states(600, 131)
    codebooks = pq.train(states, subspaces=pq.subspaces(131), iterations=2)
    assert codebooks.shape == (1, 256, 131)
    assert np.array_equal(encoded(states[:50], codebooks), nearest_by_loop(states[:50], codebooks))


def test_what_cannot_be_quantized_is_refused() -> None:
    states = some_states(2000, 8)
    with pytest.raises(UsageError, match="8 numbers cannot be cut into 3"):
        pq.train(states, subspaces=3)
    with pytest.raises(DataError, match="no states"):
        pq.train(states[:0], subspaces=4)
    with pytest.raises(DataError, match="do not fit together"):
        pq.encode(states, some_codebooks(4, 2), np.empty((1999, 4), np.uint8))
    states[1500, 3] = np.inf
    with pytest.raises(DataError, match="state 1500 is not finite"):
        encoded(states, some_codebooks(4, 2))
    with pytest.raises(DataError, match="state 1500 is not finite"):
        pq.train(states, subspaces=4)


def test_means_by_products_are_those_by_scattered_sums() -> None:
    parts, centroids = torch.randn(3, 700, 4), torch.randn(3, CENTROIDS, 4)
    codes = pq._nearest(parts, pq.Expansion.of(centroids))
    torch.testing.assert_close(pq._means_on_gpu(parts, codes, centroids), pq._means(parts, codes, centroids))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_a_gpu_quantizes_as_well_as_a_cpu() -> None:
    states, gpu = np.random.default_rng(1).normal(size=(3000, 24)).astype(np.float16), torch.device("cuda")
    codebooks = pq.train(states, subspaces=6, device=gpu)
    assert error(states, codebooks) < 1.05 * error(states, pq.train(states, subspaces=6))
    there, here = (np.zeros((len(states), 6), np.uint8) for _ in range(2))
    pq.encode(states, codebooks, there, device=gpu)
    pq.encode(states, codebooks, here)
    assert (there != here).mean() < 1e-3  # but for what is as near to two of them
