"""Peak memory: what the process holds beyond what it held before, by the kernel's own count, or the device's."""

import contextlib
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event, Thread

import torch

from knnmt.host import resident, return_freed, return_large_blocks

INTERVAL = 0.002  # seconds between looks
LARGE = 8 << 20  # bytes: smaller blocks are asked for too often to get them from the system each time


@dataclass
class Memory:
    """Bytes beyond those at the start: `held` is memory of its own, `mapped` the pages of files in use, which the
    kernel takes back when it needs them, `device` what a GPU had to have. None where that cannot be told."""

    held: int | None = None
    mapped: int | None = None
    device: int | None = None


@contextlib.contextmanager
def peak(device: torch.device) -> Iterator[Memory]:
    """Watch what runs inside; the result is complete when it is done."""
    found, stop = Memory(), Event()
    give_back()
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


def give_back() -> None:
    """Return what was freed, so that the next look does not count it as used nor the next peak get it for nothing."""
    gc.collect()
    trim()


def hold_little() -> None:
    """From now on, return large blocks to the system when they are freed: glibc would keep ever larger ones, in holes
    that nothing fits into."""
    return_large_blocks(LARGE)


def trim() -> None:
    """Return to the system what the allocators keep of freed memory."""
    return_freed()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
