"""How selection and lookup grow with the store: times and memory on synthetic stores, without a model."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from knnmt.datastore import Datastore
from knnmt.lab.bench.clock import settle
from knnmt.lab.bench.interval import Spread, exponent, spread
from knnmt.lab.bench.peak import Memory, peak
from knnmt.lab.bench.synthetic import NOISE, Shape
from knnmt.retrieval.session import Retriever
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Source

BATCH, LENGTH, BEAMS = 32, 30, 5  # sentences, their tokens, and beams
STEPS = 30  # of decoding that a batch is taken to have
BATCHES = 8  # that take turns, so that not all is in the processor's cache
SECONDS, LEAST, MOST = 1.0, 5, 40  # each measurement is repeated for so long, and so often


Item = TypeVar("Item")


@dataclass(frozen=True)
class Growth:
    """A system on a synthetic store: seconds and bytes.

    `opening` is from nothing to the first selection, checks of the arrays included; `select` is what a batch costs
    once, and `unmet` where the store was not asked for most of its tokens before; `lookup` is what a step costs, and
    `batch` all of it for a batch of STEPS steps. `disk` is the whole store, `opened` the arrays that the system maps;
    `memory` is the peak of opening and the first batch, `working` what further batches take on top of what stays of
    that.
    """

    system: str
    tokens: int
    cluster_size: int
    clusters: int
    opening: float
    select: Spread
    unmet: float
    lookup: Spread
    batch: float
    disk: int
    opened: int
    memory: Memory
    working: Memory


class _Asked(NamedTuple):
    """A batch: source tokens, and decoder states (B, K, d)."""

    source: Source
    states: Tensor


@torch.inference_mode()
def grown(shape: Shape, store: Datastore, system: str, k: int, c: int | None, device: torch.device) -> Growth:
    """Time a system on a store whose parts were made by this shape."""
    settings = RetrievalSettings(system=system, k=k, c=c, weight=0.0)
    batches = [_asked(shape, store, number, device) for number in range(BATCHES)]
    store = Datastore.open(store.path)  # nothing of it is mapped yet
    with peak(device) as memory:
        began = time.perf_counter()
        retriever = Retriever(store, device, settings)
        view, way, settings = retriever.live.view, retriever.system, retriever.settings
        retriever.look(*batches[0].source).lookup.neighbours(batches[0].states)
        settle(device)
        opening = time.perf_counter() - began
    with peak(device) as working:
        choose = lambda asked: way.select(view, asked.source, settings)  # noqa: E731
        unmet = [_seconds(choose, asked, device) for asked in batches[1:]]
        select = _repeated(choose, batches, device)
    ready = [(way.select(view, asked.source, settings), asked.states) for asked in batches]
    lookup = _repeated(lambda each: each[0].neighbours(each[1]), ready, device)
    names = [name for name in way.arrays if name in store.parts[0]]
    return Growth(
        system=system,
        tokens=store.sizes["entries"],
        cluster_size=shape.size,
        clusters=store.sizes["clusters"],
        opening=opening,
        select=select,
        unmet=median(unmet),
        lookup=lookup,
        batch=select.median + STEPS * lookup.median,
        disk=store.manifest.size,
        opened=sum(part.files[f"{name}.npy"].size for part in store.parts for name in names),
        memory=memory,
        working=working,
    )


def _asked(shape: Shape, store: Datastore, number: int, device: torch.device) -> _Asked:
    """Sentences whose tokens are as frequent as the store's, with states near some cluster of their type."""
    rng = np.random.default_rng((shape.seed, number))
    ids = np.searchsorted(np.cumsum(shape.counts), rng.integers(shape.tokens, size=(BATCH, LENGTH)), side="right")
    begin, end = shape.clusters[ids], shape.clusters[ids + 1]
    near = begin + rng.integers(0, end - begin)
    beams = near[:, rng.integers(LENGTH, size=BEAMS)]
    noise = (NOISE * rng.standard_normal((BATCH, count, shape.width), np.float32) for count in (LENGTH, BEAMS))
    source, target = (
        torch.from_numpy(store.parts[0][f"cluster_{side}"][rows].astype(np.float32) + noisy).to(device)
        for side, rows, noisy in zip(("source", "target"), (near, beams), noise, strict=True)
    )
    given = torch.from_numpy(ids).to(device)
    return _Asked(Source(given, torch.ones_like(given, dtype=torch.bool), source), target)


def _repeated(work: Callable[[Item], object], items: Sequence[Item], device: torch.device) -> Spread:
    """The time of some work, on one item after the other."""
    times: list[float] = []
    work(items[-1])
    while len(times) < LEAST or (sum(times) < SECONDS and len(times) < MOST):
        times.append(_seconds(work, items[len(times) % len(items)], device))
    return spread(times)


def _seconds(work: Callable[[Item], object], item: Item, device: torch.device) -> float:
    settle(device)
    began = time.perf_counter()
    work(item)
    settle(device)
    return time.perf_counter() - began


def in_words(rows: Sequence[Growth]) -> str:
    """How a system grows, in a sentence; the rows are of stores of several sizes."""
    first, last = (chosen(rows, key=lambda row: row.tokens) for chosen in (min, max))
    sizes = [row.tokens for row in rows]
    times = exponent(sizes, [row.batch for row in rows])
    stored = exponent(sizes, [row.opened for row in rows])
    return (
        f"{first.system}: from {first.tokens:,} to {last.tokens:,} tokens, {last.tokens / first.tokens:,.0f} times as "
        f"many, select and lookup of a batch take {last.batch / first.batch:.1f} times as long (about "
        f"tokens^{times:.2f}) and the arrays {last.opened / first.opened:.1f} times the bytes (tokens^{stored:.2f})."
    )
