"""The first pass over texts, without any warm-up: each runner translates them once in a process of its own.

Model and store are loaded before the clock starts. What is compiled, packed or looked up on first use counts, as it
does for a user who translates one file.
"""

import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import torch

from knnmt.datastore import Datastore
from knnmt.lab.bench.clock import settle
from knnmt.lab.bench.engines import ENGINES
from knnmt.lab.bench.runner import Variant, run_of
from knnmt.lab.bench.settings import BenchSettings
from knnmt.languages import Languages
from knnmt.model.checkpoint import Model, load
from knnmt.systems.table import OWN


@dataclass(frozen=True)
class Job:
    """What a process is told: a model, a variant, and batches of texts."""

    model: str
    langs: Languages | None
    device: str
    precision: str
    threads: int
    system: str
    settings: BenchSettings
    store: Path | None
    batches: Sequence[Sequence[str]]


def first_pass(model: Model, variant: Variant, batches: Sequence[Sequence[str]]) -> float | None:
    """Seconds of the first pass of a variant, in a new process; None for a system that only this one knows."""
    if variant.system not in ("base", *ENGINES, *OWN):
        return None
    job = Job(
        model.name, model.langs, str(model.device), model.transformer.precision, torch.get_num_threads(),
        variant.system, variant.settings, variant.store.path if variant.store is not None else None, batches,
    )  # fmt: skip
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(timed, job).result()


def timed(job: Job) -> float:
    """Load what a job names, and time its first pass."""
    torch.set_num_threads(job.threads)
    model = load(job.model, device=job.device, precision=job.precision, langs=job.langs)
    store = Datastore.open(job.store) if job.store is not None else None
    engine = ENGINES.get(job.system)
    run = engine(model, job.settings) if engine is not None else run_of(model, Variant(job.system, job.settings, store))
    settle(model.device)
    began = time.perf_counter()
    for batch in job.batches:
        run(list(batch))
    settle(model.device)
    return time.perf_counter() - began
