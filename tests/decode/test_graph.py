"""A replayed step does what the step itself does, and is captured anew where shapes change."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from knnmt import Translator
from knnmt.decode import batches
from knnmt.decode.graph import Replayed
from knnmt.translate import TranslateSettings

NEEDS_CUDA = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")


def test_a_step_is_just_called_on_a_cpu() -> None:
    calls: list[int] = []
    step = Replayed(lambda: calls.append(1), torch.device("cpu"), capture=True)
    for _ in range(3):
        step()
    step.changed()
    step()
    assert len(calls) == 4


@NEEDS_CUDA
def test_a_captured_step_reads_what_it_wrote() -> None:
    calls: list[int] = []
    number = torch.zeros(1, device="cuda")

    def add() -> None:
        calls.append(1)
        number.add_(number + 1)

    step = Replayed(add, number.device, capture=True)
    for _ in range(5):
        step()
    assert number.item() == 2**5 - 1
    assert len(calls) == 2  # once as it is, once captured
    number = torch.zeros(3, device="cuda")
    step.changed()
    step()
    step()
    assert number.tolist() == [3, 3, 3]


@NEEDS_CUDA
def test_a_gpu_translates_as_a_cpu_does(model_folder: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [" ".join(["Hund", "Katze", "Baum"][number % 3 :] * (1 + number % 7)) for number in range(60)]
    here, there = (
        Translator(model_folder("marian"), langs="de-en", device=device, precision="float32")
        for device in ("cpu", "cuda")
    )
    for beam in (1, 5):
        settings = TranslateSettings(beam=beam, max_length=60)
        expected = [found.tokens for found in here.translate(texts, settings)]
        assert [found.tokens for found in there.translate(texts, settings)] == expected
        monkeypatch.setattr(batches, "ON_GPU", 7)
        assert [found.tokens for found in there.translate(texts, settings)] == expected
