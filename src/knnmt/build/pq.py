"""Product quantization (Jégou, Douze and Schmid 2011): codebooks are trained, and states encoded in M bytes.

A state of d numbers is cut into M parts of d/M; each is kept as the number of its nearest of 256 centroids.
Codebooks are (M, 256, d/M) float32: a NumPy array where they are made and stored, a tensor where they are used.
Both are computed on the device of the model that makes the states: a GPU encodes millions of states in a second, a core
some thousands. `knnmt.search.pq` decodes.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.build.workers import lone_threads
from knnmt.errors import DataError, UsageError
from knnmt.search.pq import CENTROIDS

SEEDING_SIZE = 32 * CENTROIDS  # rows of the sample that the first centroids are drawn from
BLOCK_SIZE = 1 << 20  # numbers worked on at a time: a core's cache
BLOCK_SIZE_GPU = 1 << 28
GROUP_SIZE = 8  # subspaces that a worker clusters at a time
TASK_SIZE = 1 << 10  # rows that a worker encodes at a time
REPORT_SIZE = 1 << 16  # rows between two reports of progress: about a second; a GPU encodes them at a time
CPU = torch.device("cpu")


def subspaces(d: int, most: int = 128) -> int:
    """Return into how many parts a state of d numbers is cut: the largest divisor of d up to `most`."""
    return max(m for m in range(1, min(d, most) + 1) if d % m == 0)


def train(
    states: NDArray[Any],
    *,
    subspaces: int,
    seed: int = 0,
    sample: int = CENTROIDS * CENTROIDS,
    iterations: int = 8,
    device: torch.device = CPU,
) -> NDArray[np.float32]:
    """Make codebooks by k-means in every subspace at once, on a sample of the rows; only those are read.

    states: (N, d), usually a float16 memory-map; the result: (M, 256, d/M). With fewer than 256 distinct parts
    in a subspace, each is a centroid and the other centroids repeat them.
    """
    count, d = states.shape
    if d % subspaces:
        raise UsageError(f"states of {d} numbers cannot be cut into {subspaces} equal parts")
    if not count:
        raise DataError("no states to train a product quantizer on")
    rng = np.random.default_rng(seed)
    rows = np.sort(rng.choice(count, min(sample, count), replace=False, shuffle=False))
    chosen = np.asarray(states[rows], np.float32)
    _refuse_infinite(chosen, rows)
    parts = torch.from_numpy(chosen).to(device).view(rows.size, subspaces, -1).transpose(0, 1).contiguous()
    draws = torch.from_numpy(rng.random((subspaces, CENTROIDS))).to(device)
    if device.type != "cpu":
        return _cluster(parts, draws, iterations).cpu().numpy()
    groups = parts.split(GROUP_SIZE), draws.split(GROUP_SIZE)
    with lone_threads(torch.get_num_threads()) as pool:
        return torch.cat(list(pool.map(partial(_cluster, iterations=iterations), *groups))).numpy()


def encode(
    states: NDArray[Any],
    codebooks: NDArray[np.float32],
    out: NDArray[np.uint8],
    *,
    workers: int | None = None,
    progress: Callable[[int], object] | None = None,
    device: torch.device = CPU,
) -> None:
    """Write the codes of all states, a block at a time; `progress` is told the rows done since it last was.

    states: (N, d), usually a float16 memory-map; out: (N, M) uint8. Of equally near centroids the first counts.
    """
    count, d = states.shape
    subspaces, _, width = codebooks.shape
    if subspaces * width != d or out.shape != (count, subspaces):
        raise DataError(f"states {states.shape}, codebooks {codebooks.shape} and codes {out.shape} do not fit together")
    expansion = Expansion.of(torch.from_numpy(codebooks).to(device))
    at_a_time = TASK_SIZE if device.type == "cpu" else REPORT_SIZE

    def encode_rows(start: int) -> None:
        rows = states[start : start + at_a_time]
        # A matrix product may round otherwise at another size: all have the same, the last one is padded.
        filled = np.zeros((at_a_time, d), np.float32)
        filled[: len(rows)] = rows
        _refuse_infinite(filled, np.arange(start, start + at_a_time))
        parts = torch.from_numpy(filled).to(device).view(at_a_time, subspaces, width).transpose(0, 1)
        out[start : start + at_a_time] = _nearest(parts, expansion)[:, : len(rows)].T.cpu()

    with lone_threads((workers or torch.get_num_threads()) if device.type == "cpu" else 1) as pool:
        for start in range(0, count, REPORT_SIZE):
            stop = min(start + REPORT_SIZE, count)
            for _ in pool.map(encode_rows, range(start, stop, at_a_time)):
                pass
            if progress is not None:
                progress(stop - start)


@dataclass(frozen=True, eq=False)
class Expansion:
    """Squared distances to centroids as |y|² + slope·y + level, where y is what a part differs from the centre by.

    Around the centre of a subspace's centroids the terms are about as large as the distances: little cancels.
    centre: (M, 1, d/M); slope: (M, d/M, 256); level: (M, 1, 256), all float32
    """

    centre: Tensor
    slope: Tensor
    level: Tensor

    @classmethod
    def of(cls, codebooks: Tensor) -> Self:
        """Expand the distances to these codebooks: (M, 256, d/M)."""
        centre = codebooks.mean(1, keepdim=True)
        rest = (codebooks - centre).transpose(1, 2).contiguous()
        return cls(centre, -2 * rest, rest.square().sum(1, keepdim=True))


def _nearest(parts: Tensor, expansion: Expansion) -> Tensor:
    """Return the number of each part's nearest centroid, the first of equals: (M, R, d/M) gives (M, R) int64."""
    codes = torch.empty(parts.shape[:2], dtype=torch.int64, device=parts.device)
    rows = _block(parts)
    # One buffer for all blocks: memory that is fresh from the system costs more than the product itself.
    buffer = parts.new_empty(len(parts), rows, CENTROIDS)
    for start in range(0, parts.shape[1], rows):
        block = parts[:, start : start + rows] - expansion.centre
        # Without |y|², which is the same for all centroids.
        scores = torch.baddbmm(expansion.level, block, expansion.slope, out=buffer[:, : block.shape[1]])
        # NumPy's argmin is vectorised and five times as fast as that of torch.
        nearest = torch.from_numpy(scores.numpy().argmin(-1)) if parts.device.type == "cpu" else scores.argmin(-1)
        codes[:, start : start + rows] = nearest
    return codes


def _block(parts: Tensor) -> int:
    """Rows whose distances to all centroids are held at a time."""
    size = BLOCK_SIZE if parts.device.type == "cpu" else BLOCK_SIZE_GPU
    return min(max(size // (len(parts) * CENTROIDS), 1), parts.shape[1])


def _cluster(parts: Tensor, draws: Tensor, iterations: int) -> Tensor:
    """Return the centroids of k-means in each subspace.

    parts: (M, R, d/M) float32; draws: (M, 256) float64 in [0, 1), the chances of the first centroids
    """
    centroids = _seed(parts[:, :: math.ceil(parts.shape[1] / SEEDING_SIZE)].contiguous(), draws)
    for _ in range(iterations):
        centroids = _means(parts, _nearest(parts, Expansion.of(centroids)), centroids)
    return centroids


def _seed(parts: Tensor, draws: Tensor) -> Tensor:
    """Draw first centroids as k-means++ does, by their squared distances from those drawn before."""
    subspaces, rows, width = parts.shape
    centroids = parts.new_empty(subspaces, CENTROIDS, width)
    nearest = parts.new_ones(subspaces, rows)
    for number, draw in enumerate(draws.unbind(1)):
        reach = nearest.cumsum(1, dtype=torch.float64)
        # A part that is a centroid already has no reach; where all are, the last part is drawn again and again.
        picked = torch.searchsorted(reach, draw[:, None] * reach[:, -1:], right=True).clamp_(max=rows - 1)
        centroid = parts.gather(1, picked[..., None].expand(-1, -1, width))
        centroids[:, number] = centroid[:, 0]
        squares = (parts - centroid).square().sum(-1)
        nearest = torch.minimum(nearest, squares) if number else squares
    return centroids


def in_bytes(
    states: NDArray[Any], out: NDArray[np.int8], workers: int = 1
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Write states as whole numbers of a byte, each dimension with its own middle and step, a block at a time.

    states: (N, d), usually a float16 memory-map, N > 0; out: (N, d) int8. Returns the squared lengths, (N,), of what
    was written, and the middles and steps, (2, d).
    """
    norms = np.empty(len(states), np.float32)

    def extremes(start: int) -> NDArray[np.float32]:
        some = np.asarray(states[start : start + TASK_SIZE], np.float32)  # the extremes of float16 are ten times slower
        return np.stack((some.min(axis=0), some.max(axis=0)))

    def write(start: int) -> None:
        some = slice(start, start + TASK_SIZE)
        values = np.rint((states[some].astype(np.float32) - middle) / step)
        out[some] = values
        norms[some] = np.square(values * step + middle).sum(axis=1)

    with lone_threads(workers) as pool:
        low, high = zip(*pool.map(extremes, range(0, len(states), TASK_SIZE)), strict=True)
        least, most = np.min(low, axis=0), np.max(high, axis=0)
        middle, step = (least + most) / 2, np.maximum((most - least) / 254, 1e-12)
        for _ in pool.map(write, range(0, len(states), TASK_SIZE)):
            pass
    return norms, np.stack((middle, step))


def _means(parts: Tensor, codes: Tensor, centroids: Tensor) -> Tensor:
    """Move each centroid to the mean of its parts, summed in float64; one without parts stays where it is."""
    if parts.device.type != "cpu":
        return _means_on_gpu(parts, codes, centroids)
    zeros = torch.zeros(centroids.shape[:2], dtype=torch.float64)
    counts = zeros.scatter_add(1, codes, torch.ones_like(codes, dtype=torch.float64))[..., None]
    sums = torch.stack([zeros.scatter_add(1, codes, column.double()) for column in parts.unbind(-1)], dim=-1)
    return torch.where(counts > 0, (sums / counts.clamp(min=1)).float(), centroids)


def _means_on_gpu(parts: Tensor, codes: Tensor, centroids: Tensor) -> Tensor:
    """The same. Sums are products: unlike scattered ones they add in a fixed order."""
    numbers, rows = torch.arange(CENTROIDS, device=parts.device), _block(parts)
    counts, sums = torch.zeros_like(centroids[..., :1]), torch.zeros_like(centroids)
    for start in range(0, parts.shape[1], rows):
        mine = (codes[:, start : start + rows, None] == numbers).float().mT
        counts += mine.sum(-1, keepdim=True)
        sums.baddbmm_(mine, parts[:, start : start + rows])
    return torch.where(counts > 0, sums / counts.clamp(min=1), centroids)


def _refuse_infinite(states: NDArray[np.float32], rows: NDArray[np.int64]) -> None:
    """Refuse states that are not finite, as are those too large for float16, and name the first one's row."""
    wrong = ~np.isfinite(states).all(1)
    if wrong.any():
        raise DataError(f"state {rows[wrong.argmax()]} is not finite: it does not fit into float16")
