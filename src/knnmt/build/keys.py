"""Stage `keys`: the keys of both sides as the store has them, product-quantized or not, and their squared lengths."""

import numpy as np
import torch

from knnmt.build import pq
from knnmt.build.context import Context
from knnmt.search.pq import decode

MEASURED = 1 << 14  # keys whose lengths are taken together


def finish_keys(context: Context) -> None:
    """Write codes and codebooks where keys are to be quantized, and the squared lengths of keys as they are read."""
    quantized = context.settings.keys == "pq"
    sides = {side: context[f"{side}_keys"] for side in ("target", "source")}
    advance = context.watch("keys", sum(map(len, sides.values())) * (2 if quantized else 1))
    for side, keys in sides.items():
        lengths = np.empty(len(keys), np.float32)
        if quantized:
            parts = pq.subspaces(keys.shape[1])
            device = context.model.device
            codebooks = pq.train(keys, subspaces=parts, seed=context.settings.seed, device=device)
            codes = context.create(f"{side}_codes", "uint8", (len(keys), parts))
            pq.encode(keys, codebooks, codes, workers=context.workers, progress=advance, device=device)
            context.write(**{f"{side}_codebooks": codebooks})
        for start in range(0, len(keys), MEASURED):
            some = slice(start, start + MEASURED)
            rows = torch.from_numpy(np.array(keys[some]))
            if quantized:
                rows = decode(torch.from_numpy(np.array(codes[some])), torch.from_numpy(codebooks))
            lengths[some] = rows.float().square().sum(dim=-1).numpy()
            advance(len(rows))
        context.write(**{f"{side}_norms": lengths})
