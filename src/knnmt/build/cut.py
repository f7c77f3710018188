"""Stage `cut`: from the whole corpus to the segments of one part.

Parts have about the same number of target tokens, at most `part_tokens`. They end where a run of segments ends that
the model represents together: states are the same to the bit however the corpus is cut.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from knnmt.align.bitext import Bitext, Links
from knnmt.build.align import links_of
from knnmt.build.context import Context
from knnmt.csr import Int64, offsets_of
from knnmt.store import digests
from knnmt.store.entries import group_by_type

RUN = 16  # batches of tokens that are represented, and kept or done again, together


@dataclass(frozen=True, eq=False)
class Shard:
    """The segments first..last of the corpus that become one part; bounds: (R + 1,) int64, of their runs."""

    first: int
    last: int
    bounds: Int64


def stretches(whole: Context) -> list[tuple[int, int]]:
    """Where the corpus is cut before its links are known: first and last segments."""
    bitext = whole.bitext()
    return [(int(first), int(last)) for first, last in pairwise(_cuts(whole, bitext, _bounds(whole, bitext)))]


def shards(whole: Context) -> list[Shard]:
    """Cut the corpus; each shard has at least one link."""
    bitext = whole.bitext()
    bounds = _bounds(whole, bitext)
    cuts = _cuts(whole, bitext, bounds)
    _, linked = np.unique(whole["links_offsets"][cuts], return_index=True)
    cuts = cuts[linked]
    cuts[-1] = len(bitext)
    inside = [bounds[(bounds >= first) & (bounds <= last)] for first, last in pairwise(cuts)]
    return [Shard(int(first), int(last), own) for (first, last), own in zip(pairwise(cuts), inside, strict=True)]


def _bounds(whole: Context, bitext: Bitext) -> Int64:
    """Where runs of segments begin and end."""
    return np.array([0, *_runs(bitext, RUN * whole.batch_tokens)])


def _cuts(whole: Context, bitext: Bitext, bounds: Int64) -> Int64:
    """The bounds of runs that cut the corpus into pieces of about equal size."""
    entries, most = bitext.target_ids.size, whole.settings.part_tokens
    wanted = np.arange(-(-entries // most) + 1) * entries // -(-entries // most)
    return np.unique(bounds[np.searchsorted(bitext.target_offsets[bounds], wanted)])


def _runs(bitext: Bitext, tokens: int) -> Iterator[int]:
    """Where runs of segments with about so many tokens on their longer sides end; they depend on nothing else."""
    sizes = offsets_of(np.maximum(bitext.source_lengths, bitext.target_lengths))
    last = 0
    while last < len(bitext):
        last = max(last + 1, int(np.searchsorted(sizes, sizes[last] + tokens, side="right")) - 1)
        yield last


def cut(context: Context, whole: Context, shard: Shard, given: bool) -> None:
    """Write what a part has of the corpus: texts, tokens, and links by source type.

    `given`: the links were made elsewhere; nothing could make them again, and a compaction needs them.
    """
    some, texts = slice(shard.first, shard.last), slice(4 * shard.first, 4 * shard.last + 1)
    bitext, links = whole.bitext().span(shard.first, shard.last), _links(links_of(whole), shard)
    offsets = whole["text_offsets"][texts]
    for side, found in zip(("source", "target"), whole["digests"][:, some], strict=True):
        context.write(**digests.arrays_of(side, found))
    context.write(
        text=whole["text"][offsets[0] : offsets[-1]],
        text_offsets=offsets - offsets[0],
        source_ids=bitext.source_ids,
        source_offsets=bitext.source_offsets,
        target_ids=bitext.target_ids,
        target_offsets=bitext.target_offsets,
        run_bounds=shard.bounds - shard.first,
        **group_by_type(bitext, links, context.vocabulary),
    )
    if given:
        context.write(given_links=np.stack((links.source, links.target), axis=1), given_offsets=links.offsets)


def _links(links: Links, shard: Shard) -> Links:
    """The links of a shard's segments."""
    linked = links.offsets[shard.first : shard.last + 1]
    some = slice(linked[0], linked[-1])
    return Links(links.source[some], links.target[some], linked - linked[0])
