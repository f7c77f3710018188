"""What a step does with what it found, on a GPU, as Triton kernels: torch needs some thirty small ones for that.

All arithmetic is float32. Rows of a batch are the beams of all sentences, one after the other. Sizes that change from
batch to batch are not specialized: a kernel is compiled once, and never while a step is captured.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from knnmt.search.mix import Falling

WIDEST = 128  # entries of a row whose tokens are compared with each other; a search for the nearest has seldom more
ROWS = 64  # rows of a sentence that are multiplied at a time
TOKENS, TOGETHER = 128, 4  # tokens of a beam that are summed up at a time, and rows of each
LEAST = 16  # beams, and numbers of a row, that tensor cores multiply at least


def merge(tokens: Tensor, scores: Tensor) -> tuple[Tensor, Tensor]:
    """`search.mix.merge` of up to WIDEST entries a row; tokens stay in their order."""
    tokens, scores = tokens.contiguous(), scores.contiguous()
    log_p = torch.empty_like(scores)
    width = scores.size(-1)
    if scores.numel():
        _merge[scores.numel() // width,](tokens, scores, log_p, width, _padded(width))
    return tokens, log_p


def mix(logits: Tensor, normaliser: Tensor, tokens: Tensor, log_p: Tensor, weight: Tensor) -> Tensor:
    """`search.mix.mix`."""
    after, width = torch.empty_like(weight), tokens.size(-1)
    given = (each.contiguous() for each in (normaliser, tokens, log_p, weight))
    _mix[weight.numel(),](logits, *given, after, width, logits.size(-1), _padded(width))
    return after


def mix_softmax(
    queries: Tensor, rows: Tensor, levels: Tensor, runs: tuple[Tensor, Tensor], scale: float, temperature: float,
    stretch: Tensor, falling: Falling, logits: Tensor, normaliser: Tensor, places: Tensor | None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Mix the softmax of level + 2·scale·(row · query), summed by token, into logits (B, K, V), in place.

    queries: (B, K, p); rows: (B, N, p) bytes, sorted by token; levels: (B, N), -inf where there is no row; runs: the
    tokens of each sentence (B, D), and where the rows of each begin (B, D + 1); stretch: (B, 1), by which λ falls more
    slowly; places: (V,), where the logit of each token is, if elsewhere. The results are the new normaliser and the
    smallest distance, |row − query|²·scale·temperature. Both (B, K).
    """
    (batch, beams, numbers), count, (tokens, starts) = queries.shape, rows.size(1), runs
    scores = queries.new_empty(batch, beams, count)
    after, nearest, largest, shift = (queries.new_empty(batch, beams) for _ in range(4))
    _score[batch,](
        queries.contiguous(), rows, levels, normaliser.contiguous(), stretch, scores, after, nearest, largest, shift,
        count, beams, scale, temperature, *falling, numbers, _padded(numbers), _padded(beams), ROWS,
    )  # fmt: skip
    grid = batch * beams, triton.cdiv(tokens.size(1), TOKENS)
    _spread[grid](
        scores, largest, shift, tokens, starts, tokens if places is None else places, logits, count, tokens.size(1),
        beams, logits.size(2), places is not None, TOKENS, TOGETHER,
    )  # fmt: skip
    return after, nearest


def _padded(size: int) -> int:
    """The next power of two, which is what kernels are made for."""
    return max(LEAST, 1 << (size - 1).bit_length())


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


@triton.jit(do_not_specialize=["count", "beams"])
def _score(
    queries, rows, levels, normaliser, stretch, scores, after, nearest, largest, shift, count, beams, scale,
    temperature, weight, slope, most, numbers: tl.constexpr, wide: tl.constexpr, tall: tl.constexpr,
    block: tl.constexpr,
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
    for first in range(0, count, block):
        row = first + tl.arange(0, block)
        there = row < count
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


@triton.jit(do_not_specialize=["count", "distinct", "beams", "vocabulary"])
def _spread(
    scores, largest, shift, tokens, starts, places, logits, count, distinct, beams, vocabulary, placed: tl.constexpr,
    block: tl.constexpr, together: tl.constexpr,
):  # fmt: skip
    row = tl.program_id(0).to(tl.int64)
    added = tl.load(shift + row)
    if added > float("-inf"):
        sentence = row // beams
        slot = tl.program_id(1) * block + tl.arange(0, block)
        inside = slot < distinct
        begin = tl.load(starts + sentence * (distinct + 1) + slot, mask=inside, other=0)
        end = tl.load(starts + sentence * (distinct + 1) + slot + 1, mask=inside, other=0)
        top = tl.load(largest + row)
        total = tl.zeros((block,), tl.float32)
        longest = tl.max(end - begin, axis=0)
        for first in range(0, longest, together):
            at = begin[:, None] + first + tl.arange(0, together)[None, :]
            some = tl.load(scores + row * count + at, mask=at < end[:, None], other=float("-inf"))
            total += tl.sum(tl.exp(some - top), axis=1)
        there = end > begin
        token = tl.load(tokens + sentence * distinct + slot, mask=there, other=0)
        if placed:
            token = tl.load(places + token, mask=there, other=0)
        old = tl.load(logits + row * vocabulary + token, mask=there, other=0.0)
        tl.store(logits + row * vocabulary + token, _together(old, tl.log(total) + added), mask=there)
