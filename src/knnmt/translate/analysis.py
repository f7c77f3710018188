"""Count the work before anything is translated: words and segments by how well a translation memory matches them."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from knnmt.corpus.clean import count_words
from knnmt.store.digests import one_line
from knnmt.store.memories import AnyStore
from knnmt.translate.fuzzy import LEAST, best_matches

# the bands of matches: their names, and the least score of each, in percent
BANDS = {"exact": 100, "95-99": 95, "85-94": 85, "75-84": 75, "50-74": 50}
REPETITIONS, NEW = "repetitions", "new"


@dataclass
class Band:
    """How much there is of a kind of match."""

    segments: int = 0
    words: int = 0


@dataclass
class Analysis:
    """Words and segments by band. A text that occurred before, and is no exact match, is a repetition."""

    bands: dict[str, Band] = field(
        default_factory=lambda: {name: Band() for name in ("exact", REPETITIONS, *list(BANDS)[1:], NEW)}
    )

    @property
    def total(self) -> Band:
        """All of it."""
        every = self.bands.values()
        return Band(sum(band.segments for band in every), sum(band.words for band in every))

    def add(self, band: str, text: str) -> None:
        """Count a text."""
        self.bands[band].segments += 1
        self.bands[band].words += count_words(text)


def analyze(store: AnyStore | None, texts: Iterable[str]) -> Analysis:
    """Count texts by their best match in a store; without one, repetitions and new texts only."""
    texts = [one_line(text) for text in texts]
    distinct = list(dict.fromkeys(texts))
    found = best_matches(store, distinct, LEAST) if store is not None else [None] * len(distinct)
    bands = {text: band_of(0.0 if match is None else match.score) for text, match in zip(distinct, found, strict=True)}
    analysis, seen = Analysis(), set[str]()
    for text in texts:
        band = bands[text]
        analysis.add(REPETITIONS if text in seen and band != "exact" else band, text)
        seen.add(text)
    return analysis


def band_of(score: float) -> str:
    """The band of a score; 99.6 percent is no exact match."""
    return next((name for name, least in BANDS.items() if 100 * score + 1e-9 >= least), NEW)
