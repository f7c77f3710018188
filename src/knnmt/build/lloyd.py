"""Lloyd's k-means on pieces of one size at once, and the rows that it reads: of a file, or on a GPU.

On a CPU a batch ends when all of its pieces have settled, and rows are read so that results do not depend on the batch.
On a GPU nothing is asked of the device in between: all iterations are run, and a piece that has settled stays as it is.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from knnmt.csr import Int64

Float16 = NDArray[np.float16]
States = Float16 | Tensor
"""States (N, d) float16: an array, which may be memory-mapped, or a tensor on the device that works with it."""

DISTANCES = 1 << 20  # of one piece that are held at a time
DISTANCES_GPU = 1 << 28  # of all pieces of a batch


def read(states: States, rows: Int64) -> Tensor:
    """Take rows, of any shape, out of the states: (*rows, d) float32; of an array, d is padded with zeros to 16·n.

    So every row begins on a cache line: a product's last bits depend on that, and with them, among points
    equally near, a group's clusters on what comes before it in the batch.
    """
    if isinstance(states, Tensor):
        return states[torch.from_numpy(rows).to(states.device)].float()
    width = states.shape[1]
    taken = np.zeros((rows.size, width + -width % 16), np.float16)
    rising = np.argsort(rows, axis=None)  # a file is best read in its order
    taken[:, :width][rising] = np.take(states, rows.ravel()[rising], axis=0)
    return torch.from_numpy(taken).float().view(*rows.shape, -1)


def train(
    points: Tensor, means: Tensor, iterations: int, sizes: Int64 | None = None, parts: Int64 | None = None
) -> Tensor:
    """Run k-means on B pieces at once, each until its rows stay where they are; on a GPU they may be padded.

    points: (B, n, d) float32; means: (B, g, d) float32, to begin with; sizes, parts: (B,), how many of n and g each
    piece has, all if None. Returns the means at the end.
    """
    if points.device.type != "cpu":
        return train_on_gpu(points, means, iterations, sizes, parts)
    size, count, width = len(points), means.shape[1], means.shape[2]
    shift = count * torch.arange(size)[:, None]
    before: Int64 | None = None
    for _ in range(iterations):
        labels, nearest = _assign(points, means)
        moved = np.ones(size, bool) if before is None else (labels != before).any(axis=1)
        if not moved.any():
            break
        before = labels
        flat = (torch.from_numpy(labels) + shift).ravel()
        counts = torch.bincount(flat, minlength=size * count).view(size, count, 1)
        sums = torch.zeros(size * count, width).index_add_(0, flat, points.view(-1, width))
        updated = sums.view(size, count, width) / counts.clamp(min=1)
        empty = counts[..., 0] == 0
        if empty.any():
            updated = _filled(updated, empty, points, torch.from_numpy(nearest))
        # A piece that has settled stays, however long others of its batch take.
        means = torch.where(torch.from_numpy(moved)[:, None, None], updated, means)
    return means


def train_on_gpu(
    points: Tensor, means: Tensor, iterations: int, sizes: Int64 | None = None, parts: Int64 | None = None
) -> Tensor:
    """The same without a word from the device. Sums are products: unlike scattered ones they add in a fixed order."""
    inside, absent = _below(sizes, points.size(1), points.device), _absent(parts, means)
    numbers = torch.arange(means.size(1), device=points.device)
    for _ in range(iterations):
        labels, nearest = _assign_on_gpu(points, means, absent)
        counts = torch.zeros(means.shape[:2], device=points.device)
        counts.scatter_add_(1, labels, inside.float().expand_as(nearest))
        sums = torch.zeros_like(means)
        for some in _stretches(points, len(numbers)):
            mine = (labels[:, some, None] == numbers) & inside[:, some, None]
            sums.baddbmm_(mine.float().mT, points[:, some])
        empty = counts == 0 if absent is None else (counts == 0) & ~absent
        means = _filled(sums / counts.clamp(min=1)[..., None], empty, points, nearest, inside)
    return means


def _absent(parts: Int64 | None, means: Tensor) -> Tensor | None:
    """Which of the means (B, g, d) are padding, where each piece has so many (B,). (B, g), or None for none."""
    return None if parts is None else ~_below(parts, means.size(1), means.device)


def _below(counts: Int64 | None, most: int, device: torch.device) -> Tensor:
    """Which of the numbers up to `most` are below each count (B,). (B, most) bool; (1, most), all of them, if None."""
    numbers = torch.arange(most, device=device)
    return numbers[None] >= 0 if counts is None else numbers < torch.from_numpy(counts.copy()).to(device)[:, None]


def _filled(means: Tensor, empty: Tensor, points: Tensor, nearest: Tensor, inside: Tensor | None = None) -> Tensor:
    """Means (B, g, d), those of empty parts (B, g) replaced: the first of a piece takes the row that is farthest from
    its mean, the next the next. nearest: (B, n), as `_assign` gives it; inside: (B, n), which rows are there."""
    apart = torch.linalg.vector_norm(points, dim=-1).square_().add_(nearest)
    if inside is not None:
        apart = apart.masked_fill_(~inside, -torch.inf)
    far = apart.argsort(dim=1, descending=True, stable=True)
    rows = far.gather(1, (empty.cumsum(1) - 1).clamp_(0, far.size(1) - 1))
    return torch.where(empty[..., None], points.gather(1, rows[..., None].expand_as(means)), means)


def assign(points: Tensor, means: Tensor, parts: Int64 | None = None) -> Int64:
    """The nearest mean of each point, the first of equals. points: (B, n, d); means: (B, g, d); parts: as in `train`;
    (B, n)."""
    if points.device.type == "cpu":
        return _assign(points, means)[0]
    found: Int64 = _assign_on_gpu(points, means, _absent(parts, means))[0].cpu().numpy()
    return found


def _assign(points: Tensor, means: Tensor) -> tuple[Int64, NDArray[np.float32]]:
    """The nearest mean of each point, and its squared distance less the point's square. Both (B, n)."""
    size, count, parts = len(points), points.shape[1], means.shape[1]
    squares = means.square().sum(dim=-1)[:, None]
    labels, nearest = np.empty((size, count), np.int64), np.empty((size, count), np.float32)
    step = max(1, DISTANCES // parts)
    for at in range(0, count, step):
        part = slice(at, at + step)
        scores = torch.baddbmm(squares, points[:, part], means.transpose(1, 2), alpha=-2).numpy()
        labels[:, part] = scores.argmin(axis=2)
        nearest[:, part] = np.take_along_axis(scores, labels[:, part, None], axis=2)[..., 0]
    return labels, nearest


def _assign_on_gpu(points: Tensor, means: Tensor, absent: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The same, on a GPU; absent: (B, g), which means are not there."""
    squares, transposed = means.square().sum(dim=-1)[:, None], means.mT
    if absent is not None:
        squares = squares.masked_fill(absent[:, None], torch.inf)
    found: list[Any] = [
        torch.baddbmm(squares, points[:, some], transposed, alpha=-2).min(dim=2)
        for some in _stretches(points, means.size(1))
    ]
    return torch.cat([each.indices for each in found], dim=1), torch.cat([each.values for each in found], dim=1)


def _stretches(points: Tensor, parts: int) -> list[slice]:
    """Cut points (B, n, d) so that DISTANCES_GPU distances to all parts are held at a time."""
    step = max(1, DISTANCES_GPU // (len(points) * parts))
    return [slice(at, at + step) for at in range(0, points.size(1), step)]
