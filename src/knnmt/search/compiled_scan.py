"""The rows nearest to queries among all rows of a block, on a CPU: every row is compared in bytes, and only those that
may be among the nearest as they are stored.

How far a product of bytes can be from that of the numbers is bounded, so that what is found is exact: the same as by
`compiled_rows.search`, which compares what is left.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from knnmt.host import installed_memory
from knnmt.loops import compiled, fetch, larger, run
from knnmt.model.panels import MIDDLE, Panels, quantize, rounded
from knnmt.model.tiles import BYTES, COLUMNS, HEADS, ROWS, multiplies_bytes, tile
from knnmt.search.compiled_rows import LARGER, REST, search, squared_norm
from knnmt.search.products import multiply
from knnmt.search.rows import FAR, Keys, Rows

Floats = NDArray[np.float32]
Ints = NDArray[np.integer[Any]]

LARGE = 1 << 12  # rows from which a scan is worth a copy of them in bytes
SHARE = 4  # of the machine's memory: a copy takes at most one part of so many
MADE = 1 << 14  # rows whose bytes are made at a time
WORTH = 1 << 18  # row comparisons that are worth a thread
LISTED = 4, 512  # rows listed for a query: so many, at least two, for each that it asks for, and so many more
ROUNDING = np.float32(4e-5)  # of the squared lengths: what sums of float32 may be off
AHEAD = 4  # listed rows that are on their way from memory while one is compared


class Rough(NamedTuple):
    """Rows in bytes: panels of 64, (P, head and numbers, 64) int32, as `tile` reads them; the length of the longest row
    of each panel, and how far at most the bytes of one are from the row, both (P,)."""

    panels: Tensor
    lengths: Tensor
    errors: Tensor


def fits(values: Tensor) -> bool:
    """Whether rows (N, d) are worth a copy in bytes, and the machine has room for one."""
    memory = installed_memory()
    return len(values) >= LARGE and multiplies_bytes() and (memory is None or SHARE * values.nbytes // 2 <= memory)


def rough(values: Tensor) -> Rough:
    """Rows (N, d) of float16 in bytes. A panel gives the negated squared distances to queries of 2q, less |q|²; what
    fills the last one is infinitely far away."""
    count, width = -(-len(values) // COLUMNS), HEADS[True] + -(-values.size(1) // 4)
    made = Rough(torch.empty((count, width, COLUMNS), dtype=torch.int32), torch.empty(count), torch.empty(count))
    for some, into in zip(values.split(MADE), range(0, count, MADE // COLUMNS), strict=True):
        rows = F.pad(some.float(), (0, 0, 0, -len(some) % COLUMNS))
        squared = rows.square().sum(dim=1)
        squared[len(some) :] = FAR
        whole, scale = rounded(rows)
        errors = (rows - whole * scale[:, None]).square().sum(dim=1)
        panels = slice(into, into + len(rows) // COLUMNS)
        made.panels[panels] = Panels(rows, -squared, in_bytes=True).panels
        squared[len(some) :] = 0.0
        for each, found in ((made.lengths, squared), (made.errors, errors)):
            each[panels] = found.view(-1, COLUMNS).amax(dim=1).sqrt()
    return made


def scan(rows: Rows, made: Rough, queries: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Squared distances and numbers of the `count` rows nearest to queries (Q, d); ties by number. Both (Q, count),
    padded with FAR and 0."""
    total, panels = len(queries), len(made.panels)
    pieces = max(1, min(torch.get_num_threads(), len(rows) * total // WORTH, panels))
    doubled = F.pad(2.0 * queries, (0, 0, 0, -total % ROWS)).numpy()
    numbers, scales = quantize(doubled)
    seen = (numbers[:, : doubled.shape[1]].astype(np.float32) - MIDDLE) * scales[:, None]
    bounds = np.stack([np.linalg.norm(each, axis=1) for each in (doubled - seen, seen)], axis=1)
    listed = np.empty((total, pieces, LISTED[0] * count + LISTED[1]), np.int32)
    used = np.empty((total, pieces), np.int64)
    run(
        _scan, [(piece, piece + 1) for piece in range(pieces)], np.arange(pieces + 1) * panels // pieces,
        *(each.numpy() for each in (*made, rows.values.view(torch.int16), rows.norms)), numbers, scales, bounds,
        *(each.numpy() for each in (queries * (-2.0 * LARGER), queries.square().sum(dim=-1))), count, listed, used,
    )  # fmt: skip
    members = torch.from_numpy(listed[np.arange(listed.shape[2]) < used[:, :, None]])
    sizes = torch.from_numpy(used.clip(0).sum(axis=1))
    stops, each = sizes.cumsum(0), torch.ones_like(sizes)
    squared, places = search(Keys([rows]), (stops - sizes)[:, None], stops[:, None], queries, each, count, members)
    found = members[places].long() if len(members) else places
    if (used < 0).any():  # more rows are equally near than can be listed
        many = torch.from_numpy((used < 0).any(axis=1)).nonzero().flatten()
        every = torch.tensor([[0]]), torch.tensor([[len(rows)]])
        squared[many], found[many] = search(Keys([rows]), *every, queries[many], torch.tensor([len(many)]), count)
    return squared, found


@compiled
def _scan(
    first: int, last: int, ends: Ints, panels: Ints, lengths: Floats, errors: Floats, values: Ints, norms: Floats,
    numbers: NDArray[np.uint8], scales: Floats, bounds: Floats, queries: Floats, own: Floats, wanted: int, listed: Ints,
    used: Ints,
) -> None:  # fmt: skip
    """List the rows of pieces first to last of the panels that may be among the `wanted` nearest: listed
    (Q, pieces, N), rising; used (Q, pieces), how many these are, or -1 where they are too many.

    ends: (pieces + 1,), where the pieces begin; numbers, scales: of twice the queries, as `quantize` has them, padded
    to whole tiles; bounds: (Q, 2), how far these are from what they stand for, and their lengths; own: (Q,), |q|²
    """
    total, count, stride, room = len(own), numbers.shape[1] // 4, numbers.shape[1], listed.shape[2]
    size = panels.shape[1] * COLUMNS * 4
    near = np.empty((ROWS, COLUMNS), np.float32)
    # what the negated distance of a listed row, less |q|², may be: at most, and at least
    most, least = np.empty((total, room), np.float32), np.empty((total, room), np.float32)
    for piece in range(first, last):
        farthest = np.full(total, np.float32(-np.inf))  # what is farther is surely not among the nearest
        sharp = np.zeros(total, np.int64)  # how many of the listed rows were compared as they are stored
        used[:, piece] = 0
        for panel in range(ends[piece], ends[piece + 1]):
            longest, apart = lengths[panel], errors[panel]
            for begin in range(0, total, ROWS):
                tile(
                    ROWS, BYTES, panels.ctypes.data + panel * size, numbers.ctypes.data + begin * stride, stride,
                    count, scales.ctypes.data + 4 * begin, near.ctypes.data, 4 * COLUMNS,
                )  # fmt: skip
                for row in range(min(ROWS, total - begin)):
                    query = begin + row
                    slack = bounds[query, 0] * longest + bounds[query, 1] * apart
                    slack += ROUNDING * (own[query] + longest * longest)
                    limit, nearest = farthest[query] - slack, np.float32(-np.inf)
                    for column in range(COLUMNS):
                        nearest = larger(nearest, near[row, column])
                    at = used[query, piece]
                    if nearest < limit or at < 0:
                        continue
                    for column in range(COLUMNS):
                        number = panel * COLUMNS + column
                        if near[row, column] >= limit and number < len(norms) and norms[number] < np.float32(np.inf):
                            listed[query, piece, at] = number
                            most[query, at], least[query, at] = near[row, column] + slack, near[row, column] - slack
                            at += 1
                    mine = listed[query, piece], most[query], least[query]
                    if at > room // 2:
                        _sharpen(mine, sharp[query], at, values, norms, queries, query, own[query])
                        at, farthest[query] = _thin(mine, at, wanted, farthest[query])
                        sharp[query] = at
                    used[query, piece] = at if at <= room - COLUMNS else -1  # some thousand rows are equally near
        for query in range(total):
            at = used[query, piece]
            if at > wanted:
                mine = listed[query, piece], most[query], least[query]
                used[query, piece], _ = _thin(mine, at, wanted, farthest[query])


@compiled
def _thin(mine: Any, used: int, wanted: int, farthest: Any) -> Any:
    """Keep of the rows listed for a query those that may be among the nearest: how many these are, and the negated
    distance, less |q|², that `wanted` rows surely have."""
    listed, most, least = mine
    farthest = max(farthest, np.partition(least[:used], used - wanted)[used - wanted])
    kept = 0
    for place in range(used):
        if most[place] >= farthest:
            listed[kept], most[kept], least[kept] = listed[place], most[place], least[place]
            kept += 1
    return kept, farthest


@compiled
def _sharpen(
    mine: Any, first: int, last: int, values: Ints, norms: Floats, queries: Floats, query: int, own: Any
) -> None:
    """Compare rows first to last of those listed for a query as they are stored."""
    listed, most, least = mine
    width = values.shape[1]
    asked = queries.ctypes.data + 4 * width * query
    product = np.empty(1, np.float32)
    for place in range(first, last):
        if place + AHEAD < last:
            fetch(values.ctypes.data + 2 * width * listed[place + AHEAD], 2 * width)
        row = values.ctypes.data + 2 * width * listed[place]
        multiply(2, 1, row, width, asked, asked, asked, asked, asked, product.ctypes.data)
        norm = norms[listed[place]]
        norm = squared_norm(row, width) if norm < np.float32(0.0) else norm
        value, slack = -(norm + REST * product[0]), ROUNDING * (own + norm)
        most[place], least[place] = value + slack, value - slack
