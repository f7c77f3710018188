"""The largest batch that a system can translate in a given memory."""

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from knnmt.datastore import Datastore
from knnmt.lab.bench.clock import settle
from knnmt.lab.bench.peak import peak, return_unused
from knnmt.lab.bench.runner import Variant, options_of, retriever_of, served
from knnmt.lab.bench.settings import BenchSettings
from knnmt.lab.bench.speed import Progress, usable
from knnmt.model.checkpoint import Model
from knnmt.translate import Translator

MOST = 4096  # texts of a batch that is tried


@dataclass(frozen=True)
class LargestBatch:
    """The largest power of two that fits: its peak and speed, and the peak of twice as many (None if not tried).

    Bytes are those beyond the model: on a GPU the arrays of the store and the batch, on a CPU the batch alone, since
    the arrays are mapped.
    """

    system: str
    memory: int
    batch_size: int
    peak: int | None
    per_second: float | None
    next_peak: int | None


def largest_batches(
    model: Model,
    store: Datastore | None,
    texts: Sequence[str],
    settings: BenchSettings,
    memory: int,
    progress: Progress | None = None,
) -> list[LargestBatch]:
    """Double each system's batch, of the longest texts, until its measured peak is above `memory` bytes."""
    texts = usable(texts, settings)
    lengths = [len(ids) for ids in model.tokenizer.encode_source(texts)]
    longest = [texts[at] for at in sorted(range(len(texts)), key=lambda at: -lengths[at])]
    systems = [name for name in settings.systems if name != "base"] or ([] if store is None else served(store))
    variants = [Variant("base", settings), *(Variant(name, settings, store) for name in systems)]
    found = []
    for variant in variants:
        best = LargestBatch(variant.system, memory, 0, None, None, None)
        size = 1
        while size <= MOST:
            used, speed = _tried(model, variant, list(itertools.islice(itertools.cycle(longest), size)))
            if used is None or used > memory:
                best = LargestBatch(variant.system, memory, best.batch_size, best.peak, best.per_second, used)
                break
            best = LargestBatch(variant.system, memory, size, used, speed, None)
            size *= 2
        found.append(best)
        if progress is not None:
            progress("memory", 1, len(variants))
    return found


def _tried(model: Model, variant: Variant, texts: list[str]) -> tuple[int | None, float]:
    """The peak of one batch and its texts a second; no peak where the device had not enough."""
    fresh = variant._replace(store=Datastore.open(variant.store.path) if variant.store is not None else None)
    options = options_of(variant.settings).model_copy(update={"batch_size": len(texts)})
    try:
        with peak(model.device) as memory:
            translator = Translator(model, retriever=retriever_of(model, fresh))
            translator.translate(texts, options)
        began = time.perf_counter()
        translator.translate(texts, options)
        settle(model.device)
    except torch.cuda.OutOfMemoryError:
        return_unused()
        return None, 0.0
    used = memory.device if memory.device is not None else memory.held
    return used, len(texts) / (time.perf_counter() - began)
