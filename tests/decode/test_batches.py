"""Batches hold sentences of similar length, and as many as suit the device."""

import pytest
import torch

from knnmt.decode import batches as module
from knnmt.decode.batches import ON_CPU, ON_GPU, batches, going_on, room
from knnmt.model.transformer import Architecture

SMALL = Architecture(
    width=16, encoder_layers=1, decoder_layers=2, encoder_heads=2, decoder_heads=2, encoder_ffn=8, decoder_ffn=8,
    source_vocabulary=100, target_vocabulary=100, activation="relu", norm_first=False, norm_embedding=False,
    norm_final=False, scale_embedding=1.0, max_positions=64,
)  # fmt: skip
CPU, GPU = torch.device("cpu"), torch.device("cuda")


def test_a_cpu_gets_batches_of_one_size_longest_first() -> None:
    lengths = [1 + number % 50 for number in range(100)]
    found = list(batches(lengths, None, CPU, SMALL, 5))
    assert [len(batch) for batch in found] == [ON_CPU, ON_CPU, ON_CPU, 4]
    flat = [index for batch in found for index in batch]
    assert sorted(flat) == list(range(100))
    assert [lengths[index] for index in flat] == sorted(lengths, reverse=True)


def test_a_given_size_is_kept_on_any_device() -> None:
    for device in (CPU, GPU):
        assert [len(batch) for batch in batches([3] * 10, 4, device, SMALL, 5)] == [4, 4, 2]


def test_a_gpu_gets_what_its_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_free", lambda device: 1 << 40)
    assert [len(batch) for batch in batches([5] * 1500, None, GPU, SMALL, 5)] == [ON_GPU, 476]
    monkeypatch.setattr(module, "_free", lambda device: 4_000_000)
    many = [len(batch) for batch in batches([40] * 100 + [4] * 100, None, GPU, SMALL, 5)]
    assert 1 < many[0] < many[-2]  # long sentences take more
    fewer = [len(batch) for batch in batches([40] * 100, None, GPU, SMALL, 5, kept=500_000)]
    assert fewer[0] < many[0]  # what retrieval keeps counts too
    monkeypatch.setattr(module, "_free", lambda device: 1)
    assert [len(batch) for batch in batches([5] * 2, None, GPU, SMALL, 5)] == [1, 1]


def test_a_batch_on_a_gpu_has_room_for_few_numbers_of_sentences() -> None:
    """So that the kernels of all of them can be loaded beforehand."""
    assert [room(count) for count in (1, 3, 33, 950, 1024, 5000)] == [1, 4, 48, 1024, 1024, 5000]
    seen = {1024}
    for running in range(1024, 0, -1):
        seen.add(going_on(running, min(seen), static=True))
    assert seen == {1024, 512, 256, 128, 64}  # a step is captured anew for each


def test_sentences_leave_a_batch_on_a_cpu_as_soon_as_that_pays() -> None:
    assert [going_on(running, 32, static=False) for running in (32, 29, 28, 27, 1)] == [32, 32, 32, 27, 1]
    assert going_on(0, 1, static=False) == 1  # whatever is left
