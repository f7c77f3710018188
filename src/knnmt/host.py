"""Differences between operating systems: locks, syncing, renaming and removing files, cores, memory, the CPU.

No other module checks the platform. Windows cannot open folders, nor remove a file that is open or mapped; macOS and
Windows do not report CPU affinity.
"""

import contextlib
import ctypes
import mmap
import os
import platform
import socket
import sys
import time
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO

from filelock import lock_descriptor

resource: Any = import_module("resource") if find_spec("resource") else None  # not on Windows
WINDOWS = os.name == "nt"
DESCRIPTORS = Path("/dev/fd")
STATM = Path("/proc/self/statm")  # pages: total, resident, resident from files, …
CPU_MAX = Path("/sys/fs/cgroup/cpu.max")  # microseconds of all cores in a period, and the period
PATIENCE = 2.0  # seconds to wait for other processes to close a file that is to be replaced
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # from glibc's malloc.h

# ------------------------------------------------------------------------------------------------------------ locks


class Lock:
    """A lock file that this process holds."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file, self.unwanted = path, file, False

    @property
    def gone(self) -> bool:
        """Whether the file was removed after it was opened: another process may then hold one of the same name."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def remove(self) -> None:
        """Remove the file: now, while nobody else can lock it, or on Windows once it is released."""
        discard(self._path)
        self.unwanted = not self.gone


@contextlib.contextmanager
def lock(path: Path, seconds: float = 0.0) -> Iterator[Lock | None]:
    """Acquire a lock file, waiting up to so many seconds; None on timeout.

    It is the operating system's lock on an open file, released when the process ends, however it ends.
    """
    until = time.monotonic() + seconds
    with path.open("ab") as file:  # "w" would truncate a file that others have locked, which Windows refuses
        while not (held := lock_descriptor(file.fileno(), blocking=False)) and time.monotonic() < until:
            time.sleep(0.01)
        taken = Lock(path, file) if held else None
        yield taken
    if taken is not None and taken.unwanted:
        discard(path)  # fails on Windows if the next process has it open already


# ------------------------------------------------------------------------------------------------- files on disk


def sync(path: Path) -> None:
    """Flush a file, or the entries of a folder, to disk; on Windows folders cannot be synced."""
    folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDWR if WINDOWS and not folder else os.O_RDONLY)  # Windows syncs only writable ones
    except PermissionError:
        if folder and WINDOWS:
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another; on Windows, wait until nobody has that one open."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            source.replace(target)
        except PermissionError:
            if time.monotonic() > until:
                raise
            time.sleep(0.01)
        else:
            return


def discard(path: Path) -> None:
    """Remove a file or folder as far as possible: on Windows a mapped file stays."""
    if path.is_dir() and not path.is_symlink():
        for inside in path.iterdir():
            discard(inside)
        with contextlib.suppress(OSError):  # not empty
            path.rmdir()
    else:
        with contextlib.suppress(PermissionError):
            path.unlink(missing_ok=True)


def reserve(file: BinaryIO, start: int, size: int) -> None:
    """Allocate bytes of a file, filled with zeros; where possible, a full disk fails now and not later."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), start, size)
    else:
        file.truncate(start + size)


# ------------------------------------------------------------------------------------------------------ the machine


def forks() -> bool:
    """Whether forking a process with threads is safe, if the child does not touch them."""
    return sys.platform == "linux"


def reuse_address(bound: socket.socket) -> None:
    """Allow binding a recently closed port: on Windows that is the default, and the option means something else."""
    if not WINDOWS:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def open_files() -> tuple[int | None, int]:
    """How many files and sockets this process may have open (None if unknown), and how many are."""
    if resource is None:
        return None, 0
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    try:
        used = sum(1 for _ in DESCRIPTORS.iterdir())
    except OSError:
        used = 0
    return (None if limit == resource.RLIM_INFINITY else limit), used


def cores() -> int:
    """The number of cores that this process may use: by its affinity, and by the quota of its container."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = CPU_MAX.read_text(encoding="ascii").split()
        return max(1, min(found, -(-int(quota) // int(period))))
    except (OSError, ValueError):  # no such limit: «max»
        return found


def processor() -> str:
    """The name of the CPU, if known."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def installed_memory() -> int | None:
    """Physical memory in bytes; None if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def load() -> float | None:
    """The load average of the last minute; None if unknown."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def resident() -> tuple[int, int] | None:
    """Resident memory in bytes, anonymous and file-backed; None if unknown."""
    try:
        _, every, files, *_ = map(int, STATM.read_bytes().split())
    except (OSError, ValueError):
        return None
    return (every - files) * mmap.PAGESIZE, files * mmap.PAGESIZE


def return_large_blocks(size: int) -> None:
    """With glibc's malloc, return freed blocks of at least this many bytes to the system from now on, and what is free
    at the end of the heap from twice as many on, as glibc has it."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # no such library, function, or way to ask
        library = ctypes.CDLL(None)
        library.mallopt(M_MMAP_THRESHOLD, size)
        library.mallopt(M_TRIM_THRESHOLD, 2 * size)


def return_freed() -> None:
    """With glibc's malloc, return freed memory to the system."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
