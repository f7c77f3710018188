"""Nobody waits for a compiler: loops are used once they are there."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest

from knnmt import ready as module
from knnmt.ready import ENOUGH, Rehearsal, ready, searched, want


@pytest.fixture
def rehearsal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rehearsal]:
    """A process in which nothing has been rehearsed."""
    fresh = Rehearsal()
    monkeypatch.setattr(module, "_rehearsal", fresh)
    monkeypatch.setattr("atexit.register", lambda call: None)
    yield fresh
    fresh._end()
    assert fresh.thread is None or not fresh.thread.is_alive()


def test_loops_that_are_cached_are_waited_for(rehearsal: Rehearsal) -> None:
    assert not ready(10)  # nothing has begun
    seen: list[bool] = []
    rehearsal.begin(lambda: (time.sleep(0.05), seen.append(ready())), lambda: True)  # type: ignore[arg-type, func-returns-value]
    assert ready(10)
    assert seen == [True]  # it uses the loops itself


def test_loops_that_are_not_cached_are_compiled_when_there_is_enough_work(rehearsal: Rehearsal) -> None:
    done = threading.Event()
    rehearsal.begin(done.set, lambda: False)
    begun = time.monotonic()
    assert not ready(10)
    assert time.monotonic() - begun < 5  # not that long
    searched(ENOUGH / 2)
    assert not done.wait(0.05)
    searched(ENOUGH)
    assert want(10)
    assert done.is_set()
    assert ready()


def test_a_short_process_compiles_nothing(rehearsal: Rehearsal) -> None:
    called: list[int] = []
    rehearsal.begin(lambda: called.append(1), lambda: False)
    rehearsal._end()
    assert not called
    assert not ready()


def test_the_first_rehearsal_counts(rehearsal: Rehearsal) -> None:
    called: list[str] = []
    rehearsal.begin(lambda: called.append("first"), lambda: True)
    rehearsal.begin(lambda: called.append("second"), lambda: True)
    assert want(10)
    assert called == ["first"]


def test_nobody_waits_for_a_rehearsal_that_failed(rehearsal: Rehearsal, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> None:
        raise OSError("no space left on device")

    rehearsal.begin(fails, lambda: True)
    begun = time.monotonic()
    assert not want(60)
    assert not ready(60)
    assert time.monotonic() - begun < 30
    assert "no space left on device" in caplog.text


ENDS = """
import sys, threading, time
from knnmt import loops, ready
from knnmt.jit import jit

held = threading.Event()

def rehearse():
    held.set()
    threading.main_thread().join()  # until the process is ending
    {then}

ready.begin(rehearse, lambda: True)
held.wait()
"""


@pytest.mark.parametrize(
    "then",
    [
        "loops._threads().submit(print, 'late').result()",
        "jit()(lambda x: print('late'))(1)",
    ],
)
def test_a_process_that_ends_meanwhile_says_nothing(then: str) -> None:
    ended = subprocess.run([sys.executable, "-c", ENDS.format(then=then)], capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")
