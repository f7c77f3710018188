"""A store that nobody tuned uses the gate that its system comes with, and settings that say otherwise do not."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch

from knnmt.retrieval.gate import FEATURES, SHIPPED, Gate, Purpose, features, shipped_gate
from knnmt.retrieval.session import Retriever
from knnmt.settings import Metric
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS

from .examples import CPU, Case
from .test_similar import drawn

SIMILAR = Purpose("similar", "ffn_input", "squared")


def weight_of(retriever: Retriever, case: Case) -> torch.Tensor:
    """λ of each beam."""
    look = case.look(retriever)
    states = torch.from_numpy(case.states)
    logits = torch.from_numpy(np.log(case.p_mt)).float()
    found: torch.Tensor = look.weight(look.lookup.neighbours(look.view.query(states)), logits, logits.logsumexp(-1))
    return found


def test_every_gate_that_ships_is_sound_and_belongs_to_a_system() -> None:
    paths = sorted(SHIPPED.glob("*"))
    assert [path.stem for path in paths] == ["similar"]
    for path in paths:
        gate = Gate.load(path)
        assert path.stem == gate.purpose.system in SYSTEMS
        assert shipped_gate(gate.purpose) == gate
        assert shipped_gate(gate.purpose._replace(metric="cosine")) is None  # other distances mean something else
        assert shipped_gate(gate.purpose._replace(system="knn")) is None


def test_it_trusts_a_near_neighbour_that_agrees_and_leaves_a_sure_model_alone() -> None:
    gate = shipped_gate(SIMILAR)
    assert gate is not None
    step = dict.fromkeys(FEATURES, 0.0) | {"crowd": float(np.log(600.0))}

    def weight(**seen: float) -> float:
        assert gate is not None
        return float(gate(torch.tensor([(step | seen)[name] for name in FEATURES])))

    near = weight(distance=0.2, best=-0.1, agreed=-1.5, likely=-1.5, supported=-0.1)
    far = weight(distance=0.7, best=-0.1, agreed=-1.5, likely=-1.5, supported=-0.1)
    unsure = weight(distance=0.4, best=-1.0, agreed=-6.0, likely=-3.0, supported=-4.0)
    sure = weight(distance=0.4, best=-1.0, agreed=-6.0, likely=-0.1, supported=-4.0)
    assert near > far + 0.2
    assert unsure > sure + 0.1


@pytest.mark.parametrize(
    "changes", [{"weight": 0.5}, {"temperature": 3.0}, {"reach": 9.0}, {"adapt": "distance"}, {"adapt": "constant"}]
)
def test_an_explicit_setting_of_the_mix_disables_it(tmp_path: Path, changes: dict[str, Any]) -> None:
    store = drawn(1).write(tmp_path / "store", key="ffn_input")
    assert Retriever(store, CPU, RetrievalSettings(system="similar", c=3)).settings.adapt == "learned"
    retriever = Retriever(store, CPU, RetrievalSettings(system="similar", **changes))
    assert retriever.settings.adapt == changes.get("adapt", "distance")
    assert retriever.given.adapt == changes.get("adapt")  # as it was given


@pytest.mark.parametrize(("system", "metric"), [("knn", "squared"), ("similar", "cosine")])
def test_without_a_gate_for_it_λ_falls_with_the_distance(tmp_path: Path, system: str, metric: Metric) -> None:
    store = drawn(1, metric).write(tmp_path / "store", key="ffn_input")
    assert Retriever(store, CPU, RetrievalSettings(system=system)).settings.adapt == "distance"


def test_λ_is_the_gates_and_the_same_in_any_batch_and_after_others_left(tmp_path: Path) -> None:
    case = drawn(5, batch=4)
    retriever = Retriever(case.write(tmp_path / "store", key="ffn_input"), CPU, RetrievalSettings(system="similar"))
    together = weight_of(retriever, case)
    assert together.max() > 0
    for row in range(4):
        torch.testing.assert_close(weight_of(retriever, case.alone(row))[0], together[row], atol=1e-6, rtol=1e-5)
    look = case.look(retriever)
    look.keep(torch.tensor([1, 3]))
    states, logits = torch.from_numpy(case.states[[1, 3]]), torch.from_numpy(np.log(case.p_mt[[1, 3]])).float()
    found = look.lookup.neighbours(look.view.query(states))
    kept = look.weight(found, logits, logits.logsumexp(-1))
    torch.testing.assert_close(kept, together[[1, 3]], atol=1e-6, rtol=1e-5)


def test_both_backends_show_it_the_same(tmp_path: Path) -> None:
    case = drawn(9, batch=3)
    store = case.write(tmp_path / "store", key="ffn_input")
    logits = torch.from_numpy(np.log(case.p_mt)).float()
    seen = []
    for numba in (find_spec("numba"), None):
        with patch("knnmt.search.find_spec", return_value=numba):
            look = case.look(Retriever(store, CPU, RetrievalSettings(system="similar")))
        found = look.lookup.neighbours(look.view.query(torch.from_numpy(case.states)))
        seen.append(features(found, logits, logits.logsumexp(-1), look.view.scale))
    torch.testing.assert_close(seen[0], seen[1], atol=1e-3, rtol=1e-3)
