"""Stage `represent`: the model's states of all tokens of a part.

It is the long stage. What it has done is noted every few seconds, and a build that resumes goes on from there.
"""

import time
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt import files, host
from knnmt.align.bitext import Bitext
from knnmt.allocator import trim
from knnmt.build.context import Context
from knnmt.build.workers import parallel
from knnmt.csr import Int64, runs
from knnmt.model.represent import represent
from knnmt.store import arrays
from knnmt.store.entries import stored

WRITERS = 4
SYNC_SECONDS = 10.0  # the work that a crash of the machine may cost


def represent_tokens(context: Context) -> None:
    """Write the keys of all entries, and the states of the source tokens that have links."""
    bitext, positions = context.bitext(), context["positions"]
    place = np.full(bitext.source_ids.size, -1, np.int64)  # the row of each source token
    place[positions] = np.arange(positions.size)
    shapes = {"target_keys": (bitext.target_ids.size, context.width), "source_keys": (positions.size, context.width)}
    journal = context.folder / "represented"
    if not journal.exists():
        for name, shape in shapes.items():
            context.create(name, "float16", shape)
            host.sync(context.path(name))
        journal.touch()
    keys, states = (arrays.mapped(context.path(name), "float16", shape, "r+") for name, shape in shapes.items())
    done = {int(line) for line in journal.read_text().split("\n")[:-1] if line.isdigit()}
    files.write_whole(journal, "".join(f"{first}\n" for first in done).encode())  # less a last line that was cut off
    left = [run for run in pairwise(context["run_bounds"].tolist()) if run[0] not in done]
    advance = context.watch("represent", sum(last - first for first, last in left))

    def work(run: tuple[int, int]) -> None:
        _represent_run(context, bitext, place, run, keys, states)

    fresh: list[int] = []

    def note() -> None:
        for rows in (keys, states):
            if isinstance(rows, np.memmap):
                rows.flush()
        with journal.open("a") as file:
            file.writelines(f"{first}\n" for first in fresh)
        fresh.clear()
        trim()  # batches of all sizes leave holes, and more of them the longer this goes on

    # beside a GPU, threads write what it has computed while it computes what is next
    workers = context.workers if context.model.device.type == "cpu" else min(context.workers, WRITERS)
    noted = time.monotonic()
    try:
        for (first, last), _ in parallel(work, ((run, 0) for run in left), workers):
            fresh.append(first)
            advance(last - first)
            if time.monotonic() - noted > SYNC_SECONDS:
                note()
                noted = time.monotonic()
    finally:
        note()


def _represent_run(
    context: Context, bitext: Bitext, place: Int64, run: tuple[int, int], keys: NDArray[Any], states: NDArray[Any]
) -> None:
    """Fill in the states of segments first..last."""
    first, last = run
    bounds = (pairwise(o[first : last + 1].tolist()) for o in (bitext.source_offsets, bitext.target_offsets))
    pairs = [
        (bitext.source_ids[s0:s1].tolist(), bitext.target_ids[t0 : t1 - 1].tolist())  # the end is implied
        for (s0, s1), (t0, t1) in zip(*bounds, strict=True)
    ]
    for some in represent(context.model, pairs, key=context.settings.key, batch_tokens=context.batch_tokens):
        source = place[runs(bitext.source_offsets, first + np.array(some.rows))]
        target = runs(bitext.target_offsets, first + np.array(some.rows))
        linked = source >= 0
        states[source[linked]] = stored(some.source[torch.from_numpy(linked).to(some.source.device)], context.unit)
        keys[target] = stored(some.target, context.unit)
