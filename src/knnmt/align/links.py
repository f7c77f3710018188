"""Symmetrisation of two directions, and links for every target token."""

import numpy as np

from knnmt.align.bitext import Bitext, Links
from knnmt.align.kernels import grow_diag_final_and
from knnmt.csr import Int32, Int64, blocks, offsets_of
from knnmt.errors import DataError


def symmetrise(bitext: Bitext, forward: Int32, backward: Int32) -> Links:
    """Combine two directions by grow-diag-final-and (Koehn, Och and Marcu 2003).

    forward: (target tokens,) int32, source positions or -1; backward: (source tokens,) int32, the reverse
    """
    source, target = np.empty((2, forward.size + backward.size), np.int32)
    counts = np.empty(len(bitext), np.int64)
    grow_diag_final_and(forward, backward, bitext.arrays, source, target, counts)
    offsets = offsets_of(counts)
    return Links(source[: offsets[-1]].copy(), target[: offsets[-1]].copy(), offsets)


def cover(links: Links, bitext: Bitext) -> Links:
    """Link every target token, so that all can be retrieved from the source side.

    An unaligned token gets the links of its nearest aligned neighbour, the left one on ties. A segment without links
    is linked along the diagonal, the mode of the aligner's prior, which joins the last tokens (`</s>`) of both sides.
    If the source is empty, there is nothing to link to.
    """
    if len(links) != len(bitext):
        raise DataError(f"links for {len(links)} segments, but the bitext has {len(bitext)}")
    empty = np.empty(0, np.int32)
    # A token takes about 32 times the memory of a cell.
    parts = [_cover(links, bitext, first, last) for first, last in blocks(32 * bitext.target_offsets)]
    source, target, counts = (np.concatenate(column) for column in zip((empty, empty, empty), *parts, strict=True))
    return Links(source, target, offsets_of(counts))


def _cover(links: Links, bitext: Bitext, first: int, last: int) -> tuple[Int32, Int32, Int64]:
    """Cover segments first..last: sources, targets, and the number of links of each segment.

    Tokens and their links are numbered from the first of these segments.
    """
    offsets = bitext.target_offsets[first : last + 1] - bitext.target_offsets[first]
    segment = np.repeat(np.arange(last - first), np.diff(offsets))
    begin, end = offsets[segment], offsets[segment + 1]
    here = np.arange(segment.size)
    known = links.source[links.offsets[first] : links.offsets[last]]
    linked = links.target[links.offsets[first] : links.offsets[last]]
    linked = linked + np.repeat(offsets[:-1], np.diff(links.offsets[first : last + 1]))
    counts = np.bincount(linked, minlength=here.size)

    left = np.maximum.accumulate(np.where(counts > 0, here, -1))
    right = np.minimum.accumulate(np.where(counts > 0, here, here.size)[::-1])[::-1]
    has_left, has_right = left >= begin, right < end
    alone = ~has_left & ~has_right
    model = np.where(has_left & (~has_right | (here - left <= right - here)), left, right)
    model[alone] = 0

    # The source position of n nearest to j of m on the diagonal, both from 1; the lower one on ties.
    n, m = np.diff(bitext.source_offsets[first : last + 1])[segment], end - begin
    diagonal = np.maximum(-((m - 2 * (here - begin + 1) * n) // (2 * m)), 1) - 1
    copies = np.where(alone, n > 0, counts[model])
    origin = np.where(alone, known.size + here, offsets_of(counts)[model])
    token = np.repeat(here, copies)
    source = np.concatenate([known, diagonal])[(origin - offsets_of(copies)[:-1])[token] + np.arange(token.size)]
    target = token - begin[token]
    return source.astype(np.int32), target.astype(np.int32), np.bincount(segment[token], minlength=last - first)
