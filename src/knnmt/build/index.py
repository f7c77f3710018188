"""Stage `index`: a FAISS index of a part's target keys, for the system `knn`."""

import numpy as np

from knnmt.build import pq
from knnmt.build.context import Context
from knnmt.optional import require
from knnmt.store.manifest import INDEX

INDEX_FROM = 39 * 256  # keys; FAISS wants as many to train a product quantizer, and fewer are searched at once
INDEX_SAMPLE = 64  # more for each list, to train the lists on
ADDED = 1 << 16  # keys that are added at a time


def index_keys(context: Context) -> None:
    """Write the index."""
    faiss = require("faiss", extra="faiss")
    keys = context["target_keys"]
    advance = context.watch("index", len(keys))
    kind = f"IVF{round(len(keys) ** 0.5)},PQ{pq.subspaces(keys.shape[1])}"
    index = faiss.index_factory(keys.shape[1], kind if len(keys) >= INDEX_FROM else "Flat")
    sample = min(len(keys), INDEX_FROM + INDEX_SAMPLE * round(len(keys) ** 0.5))
    rows = np.random.default_rng(context.settings.seed).choice(len(keys), sample, replace=False)
    index.train(keys[np.sort(rows)].astype(np.float32))
    for start in range(0, len(keys), ADDED):
        block = keys[start : start + ADDED].astype(np.float32)
        index.add(block)
        advance(len(block))
    faiss.write_index(index, str(context.folder / INDEX))
