"""How searches are computed in tests: as lookups are, and by Triton's kernels."""

import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest
import torch

from ..retrieval.conftest import lone_thread, way

__all__ = ["lone_thread", "way"]


@pytest.fixture(scope="module")
def kernels() -> Any:
    """The kernels of a step."""
    return compiled_or_interpreted("triton_kernels")


@pytest.fixture(scope="module")
def scans() -> Any:
    """The kernels that scan all rows."""
    return compiled_or_interpreted("triton_scan")


def compiled_or_interpreted(module: str) -> Any:
    """Kernels: compiled for a GPU or, where there is none, interpreted (TRITON_INTERPRET=1)."""
    if find_spec("triton") is None:
        pytest.skip("Triton comes with torch for CUDA only")
    if not torch.cuda.is_available() and os.environ.get("TRITON_INTERPRET") != "1":
        pytest.skip("there is no CUDA device here, and TRITON_INTERPRET=1 is not set")
    return import_module(f"knnmt.search.{module}")
