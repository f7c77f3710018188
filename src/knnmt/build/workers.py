"""Threads that each compute alone: results do not depend on how many there are.

How sums are cut among the threads of one operation would show in their last bits, and threads that wait for each
other are slow on a busy machine.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import TypeVar

import torch

Task = TypeVar("Task")
Result = TypeVar("Result")


@contextmanager
def lone_threads(count: int) -> Iterator[ThreadPoolExecutor]:
    """A pool of threads with one torch thread each; after an error, pending tasks are cancelled."""
    threads = torch.get_num_threads()
    pool = ThreadPoolExecutor(count, initializer=torch.set_num_threads, initargs=(1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)  # what a worker sets for itself becomes the default of all threads to come


def alone(work: Callable[[], Result]) -> Result:
    """Run some work in a thread with one torch thread."""
    with lone_threads(1) as pool:
        return pool.submit(work).result()


def parallel(
    work: Callable[[Task], Result], tasks: Iterable[tuple[Task, int]], workers: int, memory: int = 0
) -> Iterator[tuple[Task, Result]]:
    """Run tasks, as many at a time as their bytes fit in memory; yield each with its result as it completes."""
    running: dict[Future[Result], tuple[Task, int]] = {}

    def ended() -> Iterator[tuple[Task, Result]]:
        for future in wait(running, return_when=FIRST_COMPLETED).done:
            yield running.pop(future)[0], future.result()

    with lone_threads(workers) as pool:
        for task, cost in tasks:
            while running and (len(running) > 2 * workers or cost + sum(c for _, c in running.values()) > memory):
                yield from ended()
            running[pool.submit(work, task)] = task, cost
        while running:
            yield from ended()
