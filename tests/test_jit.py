"""Loops are compiled also where the machine code cannot be kept."""

from typing import Any
from unittest.mock import patch

import numba

from knnmt.jit import jit


def test_without_a_place_to_keep_it_a_loop_is_compiled_all_the_same() -> None:
    njit = numba.njit

    def homeless(*, cache: bool = False, **options: Any) -> Any:
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return njit(**options)

    def double(x: int) -> int:
        return 2 * x

    with patch.object(numba, "njit", homeless):
        assert jit()(double)(4) == 8
