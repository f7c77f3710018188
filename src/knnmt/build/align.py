"""Stages `align`, `link` and `count`: links between the tokens of the corpus, by one alignment model, and its numbers.

The parameters are fitted on the whole corpus, or on a sample of a large one. Then stretches of the corpus, with fixed
bounds, are linked, each on its own; at the end the links are joined and counted.
"""

from collections.abc import Callable, Sequence

import numpy as np

from knnmt.align.bitext import Bitext, Links
from knnmt.align.fastalign import Aligner, train
from knnmt.align.links import cover
from knnmt.build.context import Context
from knnmt.build.read import Corpus
from knnmt.csr import Int64, blocks, offsets_of
from knnmt.errors import DataError
from knnmt.store import arrays

ALIGNER = "aligner.safetensors"  # in the work folder's shared files
ROWS = 1 << 22  # links that are copied at a time


def fit_aligner(context: Context, corpus: Corpus) -> None:
    """Write the parameters of the alignment model, unless links were given, or a store has such parameters."""
    if corpus.links is not None or corpus.aligner is not None:
        return
    bitext = context.bitext()
    train(bitext, context.settings.align, _steps(context.watch("align", len(bitext)), len(bitext))).save(
        context.shared / ALIGNER
    )


def link_given(context: Context, corpus: Corpus) -> None:
    """Write the links that were made elsewhere."""
    assert corpus.links is not None
    bitext = context.bitext()
    *numbers, total = context["numbers"].tolist()
    links = corpus.links(bitext, numbers, total)
    _write(context, cover(links, bitext) if context.settings.align.cover else links)


def link_stretch(context: Context, whole: Context, first: int, last: int, aligner: Aligner | None) -> None:
    """Write the links of the segments first..last, by the aligner of a store or by that of this build."""
    aligner = aligner or Aligner.load(context.shared / ALIGNER)
    advance = context.watch("link", last - first)
    _write(context, aligner.align(whole.bitext().span(first, last), _steps(advance, last - first)))


def join_links(context: Context, stretches: Sequence[Context]) -> None:
    """Write the links of the whole corpus: those of its stretches, one after the other."""
    counts = np.concatenate([np.diff(each["links_offsets"]) for each in stretches])
    offsets, at = offsets_of(counts), 0
    rows = context.create("links", "int32", (int(offsets[-1]), 2))
    for each in stretches:
        own = each["links"]
        for start in range(0, len(own), ROWS):
            some = own[start : start + ROWS]
            rows[at : at + len(some)] = some
            at += len(some)
    context.write(links_offsets=offsets)


def count_corpus(context: Context) -> None:
    """Write what all parts must know of the corpus: segments, entries, tokens and links; and counts by type."""
    bitext, links = context.bitext(), links_of(context)
    if not len(links.source):
        raise DataError("no token of the corpus could be aligned: are the two sides translations of each other?")
    tokens, segments = count_types(bitext, links, context.vocabulary)
    totals = [len(bitext), bitext.target_ids.size, int(tokens.sum()), links.source.size]
    context.share(type_tokens=tokens, type_segments=segments, totals=np.array(totals))


def _write(context: Context, links: Links) -> None:
    """Write the links of each segment: source and target position."""
    context.write(links=np.stack((links.source, links.target), axis=1), links_offsets=links.offsets)


def count_types(bitext: Bitext, links: Links, vocabulary: int) -> tuple[Int64, Int64]:
    """How many tokens with links each source type has, and in how many segments: two of (V,) int64."""
    tokens, segments = np.zeros(vocabulary, np.int64), np.zeros(vocabulary, np.int64)
    # A token takes some 32 times the memory of a cell.
    for first, last in blocks(32 * bitext.source_offsets):
        begin, end = bitext.source_offsets[first], bitext.source_offsets[last]
        some = slice(int(links.offsets[first]), int(links.offsets[last]))
        segment = np.repeat(np.arange(first, last), np.diff(links.offsets[first : last + 1]))
        linked = np.zeros(end - begin, np.bool_)
        linked[bitext.source_offsets[segment] + links.source[some] - begin] = True
        types = bitext.source_ids[begin:end][linked]
        owner = np.repeat(np.arange(last - first), np.diff(bitext.source_offsets[first : last + 1]))[linked]
        tokens += np.bincount(types, minlength=vocabulary)
        distinct = np.unique(owner * vocabulary + types) % vocabulary
        segments += np.bincount(distinct, minlength=vocabulary)
    return tokens, segments


def links_of(context: Context) -> Links:
    """The links of the whole corpus."""
    rows = arrays.read(context.path("links"))
    return Links(rows[:, 0], rows[:, 1], np.asarray(context["links_offsets"]))


def _steps(advance: Callable[[int], None], share: int) -> Callable[[int, int], None]:
    """From (done, total) to increments that add up to a share."""
    before = 0

    def progress(done: int, total: int) -> None:
        nonlocal before
        now = share * done // total
        advance(now - before)
        before = now

    return progress
