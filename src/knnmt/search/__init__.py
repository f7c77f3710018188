"""Search: the k nearest rows of ranges, and the softmax over rows, by torch or by compiled loops."""

from importlib.util import find_spec

import torch

from knnmt.search.compiled import CompiledSearch
from knnmt.search.search import Chosen, Search

__all__ = ["Chosen", "Search", "backend"]


def backend(device: torch.device) -> Search:
    """The fastest search for a device."""
    compiles = device.type == "cpu" and find_spec("numba") is not None
    return CompiledSearch(device) if compiles else Search(device)
