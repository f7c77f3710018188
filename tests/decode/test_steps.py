"""Compiled steps: the same whatever the threads, and all of their loops are rehearsed."""

import gc
from typing import Any

import pytest
import torch

from knnmt.decode.beam import Hypothesis, search
from knnmt.decode.rehearsal import _use_loops as rehearsed
from knnmt.jit import _Loop
from knnmt.model.checkpoint import FAMILIES, convert
from knnmt.model.linear import Precision
from knnmt.model.represent import padded
from knnmt.model.tokenizer import SpecialTokens

from ..conftest import tiny_model

SPECIAL = SpecialTokens(start=2, end=2, pad=1, prefix=(), forced_end=True, banned=(1,))
TEXTS = [[5, 9, 11, 2], [8, 2], [4, 4, 17, 3, 30, 2], [6, 7, 2], [25, 2]]


def translate(texts: list[list[int]], precision: Precision, family: str = "marian") -> list[list[Hypothesis]]:
    model = convert(tiny_model(family), FAMILIES[family]).pack(precision)
    with torch.inference_mode():
        encoded = model.encode(*padded(texts, SPECIAL.pad, model.device))
        return search(model, encoded, SPECIAL, [12] * len(texts), beams=3)


@pytest.mark.parametrize("family", ["marian", "m2m_100"])
@pytest.mark.parametrize("precision", ["float32", "int8"])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_threads_share_sentences_or_work_together(
    monkeypatch: pytest.MonkeyPatch, count: int, precision: Precision, family: str
) -> None:
    alone = translate(TEXTS[:count], precision, family)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    monkeypatch.setattr("knnmt.model.steps.WORTH", {True: 1, False: 1})
    assert translate(TEXTS[:count], precision, family) == alone  # to the bit


def compiled() -> dict[str, int]:
    """How many times each loop was compiled, or read from the cache on disk."""
    gc.unfreeze()  # what is frozen is not listed
    loops = [each for each in gc.get_objects() if type(each) is _Loop and each._created is not None]
    gc.freeze()
    return {f"{loop._function.__module__}.{loop._function.__name__}": len(loop._created.overloads) for loop in loops}


@pytest.mark.parametrize("precision", ["float32", "int8"])
def test_a_rehearsal_uses_all_loops_of_both_precisions(precision: Precision) -> None:
    model: Any = convert(tiny_model("marian"), FAMILIES["marian"])
    with torch.inference_mode():
        rehearsed(model.pack("float32"), SPECIAL)
    before = compiled()
    translate(TEXTS, precision)
    assert compiled() == before
    assert before["knnmt.model.panels._linear"] == 1
