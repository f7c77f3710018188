"""Memory that is used again: new memory costs a page fault for every 4 KiB of it, much more than filling it does."""

import weakref
from threading import RLock
from typing import Any

import numpy as np
import torch
from torch import Tensor


class Buffers:
    """Memory of a device that is lent again when its owner is gone.

    waiting: how many free buffers wait for their next use, the largest; most: the float32 of one that waits, None for
    any number
    """

    def __init__(self, device: torch.device, waiting: int = 4, most: int | None = None) -> None:
        self.device, self.waiting, self.most = device, waiting, most
        self._free: list[Tensor] = []
        self._lock = RLock()  # reentrant: while a buffer is lent, the collector may return another

    def lend(self, owner: object, size: int) -> tuple[Tensor, "weakref.finalize[..., Any]"]:
        """So many float32 or more, uninitialised, until the owner is collected, or the function is called."""
        with self._lock:
            fitting = [buffer for buffer in self._free if len(buffer) >= size]
            chosen = min(fitting, key=len) if fitting else None
            # what is too small for this will be too small for others: free it
            self._free = [buffer for buffer in self._free if buffer is not chosen] if fitting else []
        lent = self._new(size) if chosen is None else chosen
        return lent, weakref.finalize(owner, self._take_back, lent)

    def _new(self, size: int) -> Tensor:
        with torch.inference_mode(False):  # an inference tensor could not be filled outside that mode
            if self.device.type == "cpu":  # numpy asks for huge pages, torch does not; nothing has no view as halves
                return torch.from_numpy(np.empty(max(1, size), np.float32))
            return torch.empty(size, device=self.device)

    def _take_back(self, lent: Tensor) -> None:
        with self._lock:
            if self.most is None or len(lent) <= self.most:
                self._free = sorted([*self._free, lent], key=len)[-self.waiting :]
