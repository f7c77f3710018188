"""Loops that numba compiles for a CPU."""

from collections.abc import Callable
from typing import Any

import numba


def jit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile on first use, keep the machine code on disk, and let other threads run meanwhile."""

    def decorate(function: Callable[..., Any]) -> Any:
        chosen = {"nogil": True, "error_model": "numpy"} | options
        try:
            return numba.njit(cache=True, **chosen)(function)
        except RuntimeError:  # there is nowhere to keep it: compiled anew in each process
            return numba.njit(**chosen)(function)

    return decorate
