"""Peak memory: what the process holds beyond what it held before, by the kernel's own count or the device's."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Event, Thread

import torch

from knnmt.allocator import trim
from knnmt.host import resident

INTERVAL = 0.002  # seconds between samples


@dataclass
class Memory:
    """Bytes beyond those at the start; None where that cannot be told.

    held: memory of its own; mapped: pages of files, which the kernel takes back when it needs them; device: on a GPU
    """

    held: int | None = None
    mapped: int | None = None
    device: int | None = None


@contextmanager
def peak(device: torch.device) -> Iterator[Memory]:
    """Watch what runs inside; the result is complete when it is done."""
    found, stop = Memory(), Event()
    return_unused()
    before = resident()
    most = list(before) if before is not None else None

    def watch() -> None:
        while most is not None and not stop.wait(INTERVAL):
            most[:] = map(max, most, resident() or most)

    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        held = torch.cuda.memory_allocated(device)
    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield found
    finally:
        stop.set()
        watcher.join()
        if most is not None and before is not None:
            most[:] = map(max, most, resident() or most)
            found.held, found.mapped = (after - old for after, old in zip(most, before, strict=True))
        if device.type == "cuda":
            found.device = torch.cuda.max_memory_allocated(device) - held


def return_unused() -> None:
    """Return what was freed: the next sample must not count it, nor the next peak get it for nothing."""
    gc.collect()
    trim()
