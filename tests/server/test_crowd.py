"""A crowd: connections that say nothing, and hundreds of clients at the same moment."""

import argparse
import asyncio
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .real import serving
from .standin import StandIn

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def crowd(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCHMARKS))  # where it finds the others
    spec = importlib.util.spec_from_file_location("crowd", BENCHMARKS / "crowd.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "crowd", module)
    spec.loader.exec_module(module)
    return module


def test_in_a_crowd_everybody_is_served_or_sent_away_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """More requests than can be translated in time, beside silent connections: none is left to time out."""
    given = argparse.Namespace(silent=200, clients=300, rounds=1, key=None)
    with serving(StandIn(pause=0.05).as_translator(), time_limit=4, batch_tokens=128, queue=100) as port:
        seen = asyncio.run(crowd(monkeypatch).crowd(port, given))
    assert set(seen["answers_by_code"]) == {"200", "503"}
    assert seen["answers_by_code"]["503"] >= 150
    assert seen["slowest_by_code"]["503"] < 2  # a busy machine has its time
    assert seen["failed_probes"] == 0
