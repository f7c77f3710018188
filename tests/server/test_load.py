"""A few seconds of the load test: many clients at once, one of them teaching, and nobody is failed."""

import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from .real import serving
from .standin import StandIn

HERE = Path(__file__).parents[2] / "benchmarks" / "load.py"


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("load", HERE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["load"] = module  # its dataclass looks for it there
    spec.loader.exec_module(module)
    return module


def test_many_clients_are_all_served() -> None:
    load = benchmark()
    standin = StandIn(pause=0.02)
    texts = [f"Satz Nummer {n} " + "mit Wörtern " * (n % 9) for n in range(300)]
    with serving(standin.as_translator()) as port:
        seen = load.drive(port, [load.Work(texts)], clients=32, seconds=5, pid=os.getpid())
        filled = load.metric(port, "knnmt_batch_segments_sum") / load.metric(port, "knnmt_batch_segments_count")
        assert load.metric(port, "knnmt_waiting_requests") == 0
    assert seen.faults == {}
    assert sum(seen.segments.values()) > 500
    assert seen.taught >= 3
    assert filled > 8  # requests that wait are served together
    assert seen.growth < 0.2
    assert seen.percentile(0.99) < 5


def test_a_small_queue_sends_clients_away_and_fails_none() -> None:
    load = benchmark()
    with serving(StandIn(pause=0.05).as_translator(), queue=4, batch_tokens=64) as port:
        seen = load.drive(port, [load.Work(["ein Satz mit fünf Wörtern"] * 20)], clients=32, seconds=2, pid=os.getpid())
    assert seen.faults == {}
    assert seen.codes[503] > 0
    assert seen.codes[200] > 0


@pytest.mark.slow
def test_ten_thousand_requests_leave_memory_flat() -> None:
    """The growth after the first fifth, when caches and connections are there, of a server and its clients together."""
    load = benchmark()
    texts = [f"Satz Nummer {n}" for n in range(300)]
    with serving(StandIn().as_translator()) as port:
        seen = load.drive(port, [load.Work(texts)], clients=8, seconds=3600, pid=os.getpid(), requests=10_000)
    assert seen.codes == {200: 10_000}
    before, fifth, end = seen.own[0], seen.own[len(seen.own) // 5], seen.own[-1]
    assert end < 1.05 * fifth, (before, fifth, end)
