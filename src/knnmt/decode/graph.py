"""Steps as CUDA graphs: a step of the search is some hundred small kernels, and launching them one by one takes a GPU
several times as long as running them.

Within a batch nothing changes its shape from step to step, so a step is captured once and replayed. A graph belongs to
its batch; capturing takes about as long as one step that is launched kernel by kernel.
"""

import threading
from collections.abc import Callable
from typing import Any

import torch


class Replayed:
    """A step that is called again and again, with the same tensors each time; on other devices it is just called.

    The first call runs as it is, so that whatever is made on demand is there; the second is captured.
    """

    def __init__(self, step: Callable[[], None], device: torch.device, *, capture: bool) -> None:
        self.step = step
        self.capture = capture and device.type == "cuda"
        self.device = device
        self._graph: torch.cuda.CUDAGraph | None = None
        self._warm = False

    def __call__(self) -> None:
        """Do one step."""
        if not self.capture or not self._warm:
            self._warm = True
            self.step()
            return
        if self._graph is None:
            self._graph = self._captured()
        self._graph.replay()

    def changed(self) -> None:
        """Some tensor has another shape or place now: capture anew."""
        self._graph = None

    def _captured(self) -> torch.cuda.CUDAGraph:
        # not `torch.cuda.graph`, which collects garbage and empties the allocator's cache each time
        graph, side = torch.cuda.CUDAGraph(), _resources.side(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            graph.capture_begin(pool=_resources.memory(), capture_error_mode="thread_local")
            try:
                self.step()
            finally:
                graph.capture_end()
        torch.cuda.current_stream(self.device).wait_stream(side)
        _resources.last = graph
        return graph


class _Resources(threading.local):
    """What capturing needs, for each thread."""

    def __init__(self) -> None:
        self.sides: dict[torch.device, torch.cuda.Stream] = {}
        self.pool: Any = None
        self.last: torch.cuda.CUDAGraph | None = None  # a pool lives as long as a graph of it does

    def side(self, device: torch.device) -> torch.cuda.Stream:
        """The stream that captures: the default one cannot."""
        if device not in self.sides:
            self.sides[device] = torch.cuda.Stream(device)
        return self.sides[device]

    def memory(self) -> Any:
        """The pool that a thread's graphs share: they run one after the other."""
        if self.pool is None:
            self.pool = torch.cuda.graph_pool_handle()
        return self.pool


_resources = _Resources()
