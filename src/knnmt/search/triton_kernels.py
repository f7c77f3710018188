"""What a step does with what it found, on a GPU, as Triton kernels: torch needs some thirty small ones for that.

All arithmetic is float32. Rows of a batch are the beams of all sentences, one after the other. Sizes that change from
batch to batch are not specialized: a kernel is compiled once, and never while a step is captured.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from knnmt.search.mix import Falling, Scores

WIDEST = 128  # entries of a row whose tokens are compared with each other; a search for the nearest has seldom more
ROWS = 64  # rows that are compared at a time
SCORED = 64, 4  # rows that are multiplied at a time, by so many warps
SUMMED = 256  # rows of a beam that are summed up by token at a time
LEAST = 16  # beams, and numbers of a row, that tensor cores multiply at least


def try_all(device: torch.device) -> None:
    """Compile and run all of them once: whatever is wrong here is told now."""
    one, row = torch.zeros(1, 1, 1, device=device), torch.zeros(1, 1, device=device)
    tokens, log_p = merge(one.long(), one)
    mix(one, row, tokens, log_p, row)
    squared(row.to(torch.int8), row, row.long())
    counts = torch.ones(1, dtype=torch.int64, device=device)
    scores, falling = Scores(one, row, None, counts > 1), Falling(0, 0, 0)
    mix_nearest(one, one.half(), row, row.long(), (row.long(), row), 1.0, scores, falling)
    mix_softmax(one, one.to(torch.int8), row, row.long(), counts, 1.0, 1.0, scores, falling, row + 1)


def merge(tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """`search.mix.merge` of up to WIDEST entries a row; tokens stay in their order."""
    tokens, scores = tokens.contiguous(), scores.contiguous()
    log_p = torch.empty_like(scores)
    width = scores.size(-1)
    if scores.numel():
        _merge[scores.numel() // width,](tokens, scores, log_p, width, block_of(width))
    return tokens, log_p


def mix(logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
    """`search.mix.mix`."""
    after, width = torch.empty_like(weight), tokens.size(-1)
    given = (each.contiguous() for each in (normaliser, tokens, log_p, weight))
    _mix[weight.numel(),](logits, *given, after, width, logits.size(-1), block_of(width))
    return after


def mix_nearest(
    states: Tensor, rows: Tensor, norms: Tensor, lists: Tensor, shares: tuple[Tensor, Tensor], unit: float,
    scores: Scores, falling: Falling,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mix what the nearest row of each state has listed into logits (B, K, V), in place.

    states: (B, K, d); rows: (B, N, d) float16; norms: (B, N), infinite where there is no row; lists: (B, up to N), of
    each row; shares: tokens and log_p of each list, both (lists, k), as `mix` has them; unit: what a squared distance
    is multiplied by. The results are the new normaliser and the distance of the nearest row. Both (B, K).
    """
    (batch, beams, numbers), (tokens, log_p) = states.shape, shares
    logits, normaliser, places, over = scores
    assert normaliser is not None
    after, nearest = torch.empty_like(normaliser), torch.empty_like(normaliser)
    width = tokens.size(1)
    _mix_nearest[batch * beams,](
        states.contiguous(), rows, norms, lists, tokens, log_p, logits, normaliser.contiguous(),
        tokens if places is None else places, norms if over is None else over, after, nearest, rows.size(1),
        lists.size(1), beams, width, logits.size(2), unit, *falling, numbers, block_of(numbers), block_of(width),
        places is not None, over is not None, LEAST,
    )  # fmt: skip
    return after, nearest


def mix_softmax(
    queries: Tensor, rows: Tensor, levels: Tensor, tokens: Tensor, counts: Tensor, scale: float, temperature: float,
    scores: Scores, falling: Falling, stretch: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mix the softmax of level + 2·scale·(row · query), summed by token, into logits (B, K, V), in place.

    queries: (B, K, p); rows: (B, N, p) bytes; levels: (B, N); tokens: (B, N), ascending; counts: (B,), how many rows a
    sentence has, which are the first of its N; stretch: (B, 1), by which λ falls more slowly. The results are the new
    normaliser and the smallest distance, |row − query|²·scale·temperature. Both (B, K).
    """
    (batch, beams, numbers), count = queries.shape, rows.size(1)
    logits, normaliser, places, over = scores
    assert normaliser is not None
    levelled = queries.new_empty(batch, beams, count)
    after, nearest, largest, shift = (queries.new_empty(batch, beams) for _ in range(4))
    _score[batch,](
        queries.contiguous(), rows, levels, counts, normaliser.contiguous(), stretch, counts if over is None else over,
        levelled, after, nearest, largest, shift, count, beams, scale, temperature, *falling, numbers,
        block_of(numbers), block_of(beams), over is not None, SCORED[0], num_warps=SCORED[1],
    )  # fmt: skip
    _spread[batch * beams,](
        levelled, largest, shift, tokens, counts, tokens if places is None else places, logits, count, beams,
        logits.size(2), places is not None, SUMMED,
    )  # fmt: skip
    return after, nearest


def squared(rows: Tensor, states: Tensor, numbers: Tensor) -> Tensor:
    """`search.matches.squared`."""
    (queries, count), width = numbers.shape, rows.size(1)
    found = torch.zeros(numbers.shape, device=numbers.device)
    if found.numel():
        grid = queries, triton.cdiv(count, ROWS)
        _squared[grid](rows, states.contiguous(), numbers.contiguous(), found, count, width, block_of(width), ROWS)
    return found


def block_of(size: int, least: int = LEAST) -> int:
    """The next power of two, which is what kernels are made for."""
    return max(least, 1 << (size - 1).bit_length())


@triton.jit
def _together(a, b):
    """log(exp a + exp b), and -inf of nothing; b = -inf leaves a as it is, to the bit."""
    larger = tl.maximum(a, b)
    both = larger + tl.log(tl.exp(a - larger) + tl.exp(b - larger))
    return tl.where(larger == float("-inf"), larger, both)


@triton.jit(do_not_specialize=["width"])
def _merge(tokens, scores, log_p, width, padded: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * width
    place = tl.arange(0, padded)
    inside = place < width
    score = tl.load(scores + row + place, mask=inside, other=float("-inf"))
    token = tl.load(tokens + row + place, mask=inside, other=-1)
    largest = tl.max(score, axis=0)
    share = tl.exp(score - tl.where(largest == float("-inf"), 0.0, largest))
    same = token[:, None] == token[None, :]
    own = tl.sum(tl.where(same, share[None, :], 0.0), axis=1)
    found = tl.log(own / tl.maximum(tl.sum(share, axis=0), 1e-30))  # of nothing: log 0
    tl.store(log_p + row + place, found, mask=inside)


@triton.jit(do_not_specialize=["width", "vocabulary"])
def _mix(logits, normaliser, tokens, log_p, weight, after, width, vocabulary, padded: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    share = tl.load(weight + row)
    new = tl.load(normaliser + row) - tl.log(1.0 - share)
    tl.store(after + row, new)
    if share > 0.0:
        place = tl.arange(0, padded)
        inside = place < width
        at = logits + row * vocabulary + tl.load(tokens + row * width + place, mask=inside, other=0)
        old = tl.load(at, mask=inside, other=0.0)
        added = tl.load(log_p + row * width + place, mask=inside, other=0.0) + tl.log(share) + new
        tl.debug_barrier()  # a token that is there twice is read twice before it is written
        tl.store(at, _together(old, added), mask=inside)


@triton.jit(do_not_specialize=["count", "listed", "beams", "width", "vocabulary"])
def _mix_nearest(
    states, rows, norms, lists, tokens, log_p, logits, normaliser, places, over, after, nearest, count, listed, beams,
    width, vocabulary, unit, weight, slope, most, numbers: tl.constexpr, wide: tl.constexpr, padded: tl.constexpr,
    placed: tl.constexpr, ending: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    own = tl.program_id(0).to(tl.int64)
    sentence = own // beams
    begin = sentence * count
    column = tl.arange(0, wide)
    whole = column < numbers
    state = tl.load(states + own * numbers + column, mask=whole, other=0.0)
    least, chosen = float("inf"), 0
    compared = count
    if ending:
        compared = tl.where(tl.load(over + sentence) != 0, 0, count)
    for first in range(0, compared, block):
        row = first + tl.arange(0, block)
        there = tl.load(norms + begin + row, mask=row < count, other=float("inf")) < float("inf")
        each = (begin + row)[:, None] * numbers + column[None, :]
        apart = tl.load(rows + each, mask=there[:, None] & whole[None, :], other=0.0).to(tl.float32) - state[None, :]
        squared = tl.where(there, tl.sum(apart * apart, axis=1), float("inf"))
        closest = tl.min(squared, axis=0)
        chosen = tl.where(closest < least, tl.min(tl.where(squared == closest, row, count), axis=0), chosen)
        least = tl.minimum(least, closest)
    found = least * unit
    share = tl.where(least < float("inf"), weight - slope * tl.where(least < float("inf"), found, 0.0), 0.0)
    share = tl.minimum(tl.maximum(share, 0.0), most)
    new = tl.load(normaliser + own) - tl.log(1.0 - share)
    tl.store(after + own, new)
    tl.store(nearest + own, found)
    if share > 0.0:
        place = tl.arange(0, padded)
        inside = place < width
        entry = tl.load(lists + sentence * listed + chosen) * width + place
        token = tl.load(tokens + entry, mask=inside, other=0)
        if placed:
            token = tl.load(places + token, mask=inside, other=0)
        at = logits + own * vocabulary + token
        old = tl.load(at, mask=inside, other=0.0)
        added = tl.load(log_p + entry, mask=inside, other=0.0) + tl.log(share) + new
        tl.debug_barrier()  # a token that is there twice is read twice before it is written
        tl.store(at, _together(old, added), mask=inside)


@triton.jit(do_not_specialize=["count"])
def _squared(rows, states, numbers, found, count, width: tl.constexpr, wide: tl.constexpr, block: tl.constexpr):
    query = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * block + tl.arange(0, block)
    at = query * count + place
    number = tl.load(numbers + at, mask=place < count, other=-1)
    there = number >= 0
    column = tl.arange(0, wide)
    whole = column < width
    state = tl.load(states + query * width + column, mask=whole, other=0.0)
    values = tl.load(rows + number[:, None] * width + column[None, :], mask=there[:, None] & whole[None, :], other=0)
    apart = values.to(tl.float32) - state[None, :]
    tl.store(found + at, tl.sum(apart * apart, axis=1), mask=there)


@triton.jit(do_not_specialize=["count", "beams"])
def _score(
    queries, rows, levels, counts, normaliser, stretch, over, scores, after, nearest, largest, shift, count, beams,
    scale, temperature, weight, slope, most, numbers: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr,
    ending: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    sentence = tl.program_id(0).to(tl.int64)
    number, beam = tl.arange(0, wide), tl.arange(0, tall)
    running, whole = beam < beams, number < numbers
    own = sentence * beams + beam
    full = running[:, None] & whole[None, :]
    query = tl.load(queries + own[:, None] * numbers + number[None, :], mask=full, other=0.0)
    high = query.to(tl.float16)  # float32 as two float16 numbers, which tensor cores multiply
    low = (query - high.to(tl.float32)).to(tl.float16)
    top = tl.full((tall,), float("-inf"), tl.float32)
    total = tl.zeros((tall,), tl.float32)
    end = tl.load(counts + sentence)
    if ending:
        end = tl.where(tl.load(over + sentence) != 0, 0, end)
    for first in range(0, end, block):
        row = first + tl.arange(0, block)
        there = row < end
        each = sentence * count + row
        inside = there[:, None] & whole[None, :]
        values = tl.load(rows + each[:, None] * numbers + number[None, :], mask=inside, other=0)
        turned = tl.trans(values.to(tl.float16))
        product = tl.dot(high, turned) + tl.dot(low, turned)
        score = tl.load(levels + each, mask=there, other=float("-inf"))[None, :] + 2.0 * scale * product
        tl.store(scores + own[:, None] * count + row[None, :], score, mask=running[:, None] & there[None, :])
        higher = tl.maximum(top, tl.max(score, axis=1))
        finite = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - finite) + tl.sum(tl.exp(score - finite[:, None]), axis=1)
        top = higher
    found = tl.maximum(tl.sum(query * query, axis=1) - top / scale, 0.0) * scale * temperature
    share = weight - slope * found / tl.load(stretch + sentence)
    share = tl.where(top > float("-inf"), tl.minimum(tl.maximum(share, 0.0), most), 0.0)
    new = tl.load(normaliser + own, mask=running, other=0.0) - tl.log(1.0 - share)
    tl.store(after + own, new, mask=running)
    tl.store(nearest + own, found, mask=running)
    tl.store(largest + own, tl.where(top > float("-inf"), top, 0.0), mask=running)
    tl.store(shift + own, tl.where(share > 0.0, tl.log(share) + new - tl.log(total), float("-inf")), mask=running)


@triton.jit
def _of_run(total, new, value, begins):
    """The sum of a run so far, and whether one began: another run begins anew."""
    return tl.where(begins != 0, value, total + value), new | begins


@triton.jit(do_not_specialize=["count", "beams", "vocabulary"])
def _spread(
    scores, largest, shift, tokens, counts, places, logits, count, beams, vocabulary, placed: tl.constexpr,
    block: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    added = tl.load(shift + row)
    if added > float("-inf"):
        sentence = row // beams
        end = tl.load(counts + sentence)
        top = tl.load(largest + row)
        place = tl.arange(0, block)
        carried = 0.0  # of the run that goes on in the next rows
        for first in range(0, end, block):
            at = first + place
            there = at < end
            own = tokens + sentence * count + at
            token = tl.load(own, mask=there, other=-1)
            begins = token != tl.load(own - 1, mask=there & (at > 0), other=-1)
            ends = there & (token != tl.load(own + 1, mask=at + 1 < end, other=-1))
            share = tl.exp(tl.load(scores + row * count + at, mask=there, other=float("-inf")) - top)
            share += tl.where((place == 0) & (begins == 0), carried, 0.0)
            total, _ = tl.associative_scan((share, begins.to(tl.int32)), 0, _of_run)
            carried = tl.sum(tl.where(place == block - 1, total, 0.0), axis=0)
            if placed:
                token = tl.load(places + token, mask=ends, other=0)
            old = tl.load(logits + row * vocabulary + token, mask=ends, other=0.0)
            tl.store(logits + row * vocabulary + token, _together(old, tl.log(total) + added), mask=ends)
