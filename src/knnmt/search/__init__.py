"""Search: the k nearest rows of ranges, and the softmax over rows, by torch, on a GPU or not, or by compiled loops."""

from importlib.util import find_spec

import torch

from knnmt.search.compiled import CompiledSearch
from knnmt.search.cuda import CudaSearch
from knnmt.search.search import Chosen, Search

__all__ = ["Chosen", "Search", "backend"]


def backend(device: torch.device) -> Search:
    """The fastest search for a device."""
    if device.type == "cuda":
        return CudaSearch(device)
    return CompiledSearch(device) if find_spec("numba") is not None else Search(device)
