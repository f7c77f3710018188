"""Loops compile on first call, also where the machine code cannot be cached."""

import importlib
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numba
import numpy as np
import pytest

from knnmt.align import kernels
from knnmt.jit import jit


def test_a_loop_compiles_without_a_cache_directory() -> None:
    njit = numba.njit

    def homeless(*function: Any, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(*function, **options)

    def double(x: int) -> int:
        return 2 * x

    with patch.object(numba, "njit", homeless):
        assert jit()(double)(4) == 8


def test_importing_compiled_loops_does_not_import_numba() -> None:
    program = "import sys; import knnmt.align, knnmt.align.kernels; print('numba' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"


def test_a_compiled_loop_calls_another() -> None:
    places = np.array([-1, 7, -1, -1], np.int32)
    starts, slots = np.array([0, 0, 4]), np.zeros(1, np.int64)
    bitext = np.array([1], np.int32), np.array([0, 1]), np.array([7], np.int32), np.array([0, 1])
    kernels.locate(0, 1, bitext, starts, places, np.array([0, 1]), 0, slots)
    assert slots[0] == kernels.seek(places, 0, 4, 7) == 1


def test_machine_code_of_an_earlier_version_is_not_cached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "doubling.py"
    source.write_text("from knnmt.jit import jit\n\n@jit()\ndef double(x):\n    return 2 * x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    loop = importlib.import_module("doubling").double
    assert not loop.cached()
    assert loop(4) == 8
    assert loop.cached()
    later = time.time() + 60
    os.utime(source, (later, later))
    assert not loop.cached()
