"""Which sentences are searched together: those of similar length, so that little is padding; as many as suit a device.

A CPU is busy with few sentences. A GPU takes as many as there is memory for, up to a number beyond which nothing is
gained: what is counted is the cache, the scores over the vocabulary, and what retrieval keeps for each sentence.
"""

from collections.abc import Iterator, Sequence

import torch

from knnmt.model.transformer import Architecture

ON_CPU = 32
ON_GPU = 1024
LEAVE = 0.1, 1  # a fraction, and a number, of finished sentences at which they leave a batch on a CPU
ROOMS = (1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
"""Sentences of a batch on a GPU while it is searched: few sizes, whose kernels are loaded beforehand."""
FEW = 64  # sentences up to which none leaves the batch on a GPU: fewer take as long
MEMORY = 0.25  # the share of a GPU's free memory that a batch may use, by this estimate
SCORES = 16  # bytes for each token of the vocabulary and each beam: logits and what is made of them


def batches(
    lengths: Sequence[int],
    size: int | None,
    device: torch.device,
    architecture: Architecture,
    beams: int,
    kept: int = 0,
) -> Iterator[list[int]]:
    """Indices in batches of `size`, longest first; without a size, of what suits the device.

    lengths: source tokens; kept: bytes that retrieval keeps for each sentence
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    free = _free(device) if size is None and device.type == "cuda" else 0
    while order:
        count = size or ON_CPU
        if free:
            one = beams * (SCORES * architecture.target_vocabulary + _cached(architecture, lengths[order[0]])) + kept
            count = max(1, min(ON_GPU, int(free * MEMORY) // one))
        yield order[:count]
        order = order[count:]


def room(count: int) -> int:
    """The sentences that a batch on a GPU has room for, if `count` are to be searched."""
    return next((size for size in ROOMS if size >= count), count)


def going_on(running: int, rows: int, *, static: bool) -> int:
    """How many rows of a batch go on when so many of its sentences have not finished; all, if leaving does not pay.

    static: on a GPU, where few sizes occur and a step is captured anew for each
    """
    if not static:
        return running if rows - running >= LEAVE[0] * rows + LEAVE[1] else rows
    return room(running) if rows > FEW and 2 * room(running) <= rows else rows


def _cached(architecture: Architecture, length: int) -> int:
    """Bytes of the keys and values of a beam, for a translation half as long again as its source."""
    return 3 * length * architecture.decoder_layers * 2 * architecture.width * 4 // 2


def _free(device: torch.device) -> int:
    """Bytes that can still be allocated."""
    free, _ = torch.cuda.mem_get_info(device)
    return int(free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device))
