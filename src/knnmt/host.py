"""What operating systems do in different ways: locks, files on disk, removal, cores, memory, the processor.

Nothing else in the package asks for the system it runs on. Windows neither opens folders nor lets go of a file that
somebody has open or mapped; macOS and Windows do not say which cores a process may use.
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
from pathlib import Path
from typing import BinaryIO

WINDOWS = os.name == "nt"
STATM = Path("/proc/self/statm")  # pages: all, resident, resident from files, …
PATIENCE = 2.0  # seconds: for as long, another process may be reading what is to be replaced
M_MMAP_THRESHOLD = -3  # of glibc's malloc.h

# ------------------------------------------------------------------------------------------------------------ locks


class Lock:
    """A lock file that this process holds."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path, self._file, self.unwanted = path, file, False

    @property
    def gone(self) -> bool:
        """Whether the file was removed after it was opened: then others may hold one of the same name."""
        return os.fstat(self._file.fileno()).st_nlink == 0

    def remove(self) -> None:
        """Remove the file: now, while nobody else can have it, or on Windows once it is let go of."""
        discard(self._path)
        self.unwanted = not self.gone


@contextlib.contextmanager
def lock(path: Path, seconds: float = 0.0) -> Iterator[Lock | None]:
    """Hold a lock file, after waiting that long for whoever holds it; None where that was not long enough.

    It is the system's own lock on an open file: it goes when the process does, however that ends.
    """
    from filelock import lock_descriptor

    until = time.monotonic() + seconds
    with path.open("ab") as file:  # "w" would cut off what another has locked, which Windows refuses
        while not (held := lock_descriptor(file.fileno(), blocking=False)) and time.monotonic() < until:
            time.sleep(0.01)
        taken = Lock(path, file) if held else None
        yield taken
    if taken is not None and taken.unwanted:
        discard(path)  # refused on Windows where the next one has it open already


# ------------------------------------------------------------------------------------------------- files on disk


def sync(path: Path) -> None:
    """Wait until a file is on disk, or the names in a folder, where folders can be opened."""
    folder = path.is_dir()
    try:
        handle = os.open(path, os.O_RDWR if WINDOWS and not folder else os.O_RDONLY)  # there, only a writer can
    except PermissionError:
        if folder and WINDOWS:
            return
        raise
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace(source: Path, target: Path) -> None:
    """Rename a file over another, which on Windows must wait until nobody reads it."""
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
    """Remove a file or a folder that nothing needs, as far as can be: on Windows a file that is mapped stays."""
    if path.is_dir() and not path.is_symlink():
        for inside in path.iterdir():
            discard(inside)
        with contextlib.suppress(OSError):  # something has stayed in it
            path.rmdir()
    else:
        with contextlib.suppress(PermissionError):
            path.unlink(missing_ok=True)


def reserve(file: BinaryIO, start: int, size: int) -> None:
    """Make room for bytes of a file, zeros to begin with; where it can, a disk that is too small says so now."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), start, size)
    else:
        file.truncate(start + size)


# ------------------------------------------------------------------------------------------------------ the machine


def forks() -> bool:
    """Whether a process that has threads may fork children that touch nothing of theirs."""
    return sys.platform == "linux"


def reuse_address(taken: socket.socket) -> None:
    """Let a port be taken that was given up a moment ago: on Windows it can be, and the option means another thing."""
    if not WINDOWS:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def processor() -> str:
    """The name of the processor, where it can be told."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def installed_memory() -> int | None:
    """Bytes of the machine; None where it does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None


def load() -> float | None:
    """How many processes wanted to run in the last minute; None where nobody counts."""
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else None


def resident() -> tuple[int, int] | None:
    """Bytes in memory: the process's own, and of files; None where the kernel does not say."""
    try:
        _, every, files, *_ = map(int, STATM.read_bytes().split())
    except (OSError, ValueError):
        return None
    return (every - files) * mmap.PAGESIZE, files * mmap.PAGESIZE


def return_large_blocks(size: int) -> None:
    """From now on, have blocks of that many bytes go back to the system when freed, where malloc is glibc's."""
    with contextlib.suppress(OSError, AttributeError, TypeError):  # in turn: no such library, function, or way to ask
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, size)


def return_freed() -> None:
    """Have what malloc keeps of freed memory go back to the system, where it is glibc's."""
    with contextlib.suppress(OSError, AttributeError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
