"""Stages `align` and `count`: links between the tokens of the whole corpus, by one alignment model, and its numbers."""

from collections.abc import Callable

import numpy as np

from knnmt.align.bitext import Bitext, Links
from knnmt.align.fastalign import Aligner, train
from knnmt.align.links import cover
from knnmt.build.context import Context
from knnmt.build.read import Corpus
from knnmt.csr import Int64, blocks
from knnmt.errors import DataError
from knnmt.store import arrays

ALIGNER = "aligner.safetensors"  # in the work folder's shared files


def align_tokens(context: Context, corpus: Corpus) -> None:
    """Write the links of each segment: source and target position."""
    bitext = context.bitext()
    links = _links(context, corpus, bitext)
    if not len(links.source):
        raise DataError("no token of the corpus could be aligned: are the two sides translations of each other?")
    context.write(links=np.stack((links.source, links.target), axis=1), links_offsets=links.offsets)


def count_corpus(context: Context) -> None:
    """Write what all parts must know of the corpus: segments, entries, tokens and links; and counts by type."""
    bitext, links = context.bitext(), links_of(context)
    tokens, segments = count_types(bitext, links, context.vocabulary)
    totals = [len(bitext), bitext.target_ids.size, int(tokens.sum()), links.source.size]
    context.share(type_tokens=tokens, type_segments=segments, totals=np.array(totals))


def _links(context: Context, corpus: Corpus, bitext: Bitext) -> Links:
    """The links that were given, or those of the store's aligner, or of one that is trained on the corpus and kept."""
    settings, advance = context.settings.align, context.watch("align", 2 * len(bitext))
    if corpus.links is not None:
        *numbers, total = context["numbers"].tolist()
        links = corpus.links(bitext, numbers, total)
        return cover(links, bitext) if settings.cover else links
    aligner: Aligner | None = corpus.aligner
    if aligner is None:
        aligner = train(bitext, settings, _steps(advance, len(bitext)))
        aligner.save(context.shared / ALIGNER)
    return aligner.align(bitext, _steps(advance, len(bitext)))


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
    """The links that `align_tokens` wrote."""
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
