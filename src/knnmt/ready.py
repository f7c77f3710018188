"""Whether the compiled loops are ready: nobody waits for a compiler.

To read them from the cache on disk takes half a second, and is done beside the start of a process. Where they were
never compiled, that takes some twenty seconds: it is done beside the work of a process that has enough of it, and a
short one goes without. What runs before the loops are ready runs by torch, which finds the same up to rounding.
"""

import atexit
import logging
import threading
import time
from collections.abc import Callable
from importlib.util import find_spec

log = logging.getLogger(__name__)

ENOUGH = 5.0  # seconds of searching after which a process compiles the loops


class Rehearsal:
    """Makes the loops ready in a thread of its own, once in a process."""

    def __init__(self) -> None:
        self.ready, self.wanted = threading.Event(), threading.Event()
        self.known = threading.Event()  # whether the loops are cached: there is no use in waiting if not
        self.over = threading.Event()  # done, or failed
        self.thread: threading.Thread | None = None
        self.begun, self.seconds, self.ending = 0.0, 0.0, False
        self._starting = threading.Lock()

    def begin(self, rehearse: Callable[[], None], cached: Callable[[], bool]) -> None:
        """Call `rehearse`, which uses all loops, when they are cached or wanted; the first call of a process counts."""
        with self._starting:
            if self.thread is not None or find_spec("numba") is None:
                return
            self.thread = threading.Thread(target=self._run, args=(rehearse, cached), name="knnmt-loops", daemon=True)
            self.begun = time.monotonic()
            atexit.register(self._end)
            self.thread.start()

    def _run(self, rehearse: Callable[[], None], cached: Callable[[], bool]) -> None:
        try:
            if not cached():
                self.known.set()
                self.wanted.wait()
            if not self.ending:
                rehearse()
                self.ready.set()
        except Exception:
            if threading.main_thread().is_alive():  # a process that is ending has no threads to share work with
                log.warning("compiled loops are not available: decoding runs slower, by torch", exc_info=True)
        finally:
            self.known.set()
            self.over.set()

    def _end(self) -> None:
        """A compiler that is torn down while it works may crash."""
        self.ending = True
        self.wanted.set()
        if self.thread is not None:
            self.thread.join()


_rehearsal = Rehearsal()
begin = _rehearsal.begin


def ready(within: float = 0.0) -> bool:
    """Whether the loops are ready; if they are cached, waits until so many seconds after the rehearsal began."""
    if _rehearsal.ready.is_set() or threading.current_thread() is _rehearsal.thread:
        return True
    if within and _rehearsal.thread is not None:
        _rehearsal.known.wait(max(0.0, _rehearsal.begun + within - time.monotonic()))
    return _rehearsal.ready.is_set()


def searched(seconds: float) -> None:
    """Count the time of a search on a CPU."""
    _rehearsal.seconds += seconds
    if _rehearsal.seconds > ENOUGH:
        _rehearsal.wanted.set()


def want(seconds: float = 0.0) -> bool:
    """Compile the loops if they are not cached: there is much to do. Waits for it so long; says whether it is done."""
    _rehearsal.wanted.set()
    if _rehearsal.thread is not None:
        _rehearsal.over.wait(seconds)
    return _rehearsal.ready.is_set()
