"""Bitexts and links for the tests of the aligner, drawn and converted."""

import numpy as np
from hypothesis import strategies as st

from knnmt.align.bitext import Bitext, Links

from ..oracle import align as oracle


def bitext_of(corpus: oracle.Corpus) -> Bitext:
    return Bitext.from_pairs(zip([source for source, _ in corpus], [target for _, target in corpus], strict=True))


def links_of(segments: list[set[oracle.Point]]) -> Links:
    ordered = [sorted(segment, key=lambda point: point[::-1]) for segment in segments]
    flat = np.array([point for segment in ordered for point in segment], np.int32).reshape(-1, 2)
    return Links(flat[:, 0], flat[:, 1], np.cumsum([0, *map(len, ordered)]))


def segments_of(links: Links) -> list[list[oracle.Point]]:
    return [links.segment(index) for index in range(len(links))]


@st.composite
def linked(draw: st.DrawFn) -> tuple[Bitext, Links]:
    """Segments of any length, also none, with some of their cells linked."""
    sizes = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 6)), max_size=5))
    points = []
    for n, m in sizes:
        cells = [(i, j) for i in range(n) for j in range(m)]
        points.append(draw(st.sets(st.sampled_from(cells), max_size=4)) if cells else set())
    return bitext_of([([0] * n, [0] * m) for n, m in sizes]), links_of(points)
