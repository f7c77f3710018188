"""Language identification by py3langid: of segments, for cleaning, and of a corpus, to detect swapped sides.

py3langid knows 140 languages. It is reliable for sentences, not for short strings, names and formulas, so only
confident results count.
"""

import logging
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import langcodes

from knnmt.corpus.segment import Segment
from knnmt.errors import UsageError
from knnmt.languages import Languages

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

_log = logging.getLogger(__name__)

LOOKED_AT = 1000  # segments of a corpus, the first
CHARACTERS = 20_000  # of a side of them, at most: more tell nothing new
LETTERS = 200  # of both sides, at least: a corpus with fewer is not judged as a whole
SWAPPED = 0.99  # how sure it must be, among the two languages, that a side is the other one
OTHER = 0.02  # what is left for the language asked for, where a text is in another one
SAME = 1  # distance of two tags that name one language: nb and no, fil and tl
# languages that it takes for one another
_ALIKE = (
    {"no", "nn", "da"}, {"hr", "bs", "sr", "sl"}, {"id", "ms", "jv", "ace"}, {"cs", "sk"}, {"nl", "af", "fy"},
    {"de", "lb"}, {"en", "pcm"}, {"es", "gl", "ca", "an", "ext"}, {"pt", "gl"}, {"it", "vec", "lij"},
    {"fr", "oc", "wa"}, {"zh", "wuu", "yue"}, {"ar", "arz", "ary"}, {"he", "hbo"}, {"el", "grc"}, {"lv", "ltg"},
    {"tl", "bcl"}, {"tr", "az", "crh", "tk"}, {"ru", "be", "uk"}, {"bg", "mk"}, {"uz", "uzs"}, {"ku", "sdh"},
)  # fmt: skip


class Identifier:
    """Identifies the language of texts, for a pair of distinguishable languages; `of` makes one."""

    def __init__(self, identifier: "LanguageIdentifier", source: str, target: str) -> None:
        self.source, self.target = source, target  # as py3langid calls them
        self._all = identifier
        self._alike = {code: {code}.union(*(some for some in _ALIKE if code in some)) for code in (source, target)}

    @classmethod
    def of(cls, languages: Languages) -> "Identifier | None":
        """The identifier of a pair, or None, with a warning, where the two cannot be told apart."""
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        source, target = (
            langcodes.closest_supported_match(tag.partition("-")[0], identifier.labels, SAME)
            for tag in (languages.source, languages.target)
        )
        if source is None or target is None:
            _log.warning("no language check for %s: py3langid does not know both languages", languages)
            return None
        if source == target:
            _log.warning("no language check for %s: py3langid does not distinguish regions", languages)
            return None
        return cls(identifier, source, target)

    def shares(self, text: str) -> dict[str, float]:
        """The probability of each language, by py3langid's codes, most likely first."""
        return dict(self._all.rank(text))

    def is_other(self, shares: dict[str, float], code: str) -> float:
        """The probability that a text is in the other language of the two."""
        other = self.target if code == self.source else self.source
        return shares[other] / (shares[other] + shares[code] or 1.0)

    def is_foreign(self, shares: dict[str, float], code: str) -> float:
        """The probability that a text is neither in this language nor in one that is often confused with it."""
        return 1.0 - sum(shares.get(alike, 0.0) for alike in self._alike[code])


def identified(segments: Iterator[Segment], name: str, languages: Languages) -> Iterator[Segment]:
    """Stream a corpus after checking its start: refuse swapped sides, warn about a wrong language."""
    first = list(islice(segments, LOOKED_AT))
    sides = tuple(_joined(texts) for texts in ([s.source for s in first], [s.target for s in first]))
    if min(map(_letters, sides)) >= LETTERS and (identifier := Identifier.of(languages)) is not None:
        _judge(identifier, *sides, name=name, languages=languages)
    yield from chain(first, segments)


def _judge(identifier: Identifier, source: str, target: str, *, name: str, languages: Languages) -> None:
    of_source, of_target = identifier.shares(source), identifier.shares(target)
    swapped = min(identifier.is_other(of_source, identifier.source), identifier.is_other(of_target, identifier.target))
    foreign = [identifier.is_foreign(of_source, identifier.source), identifier.is_foreign(of_target, identifier.target)]
    if swapped >= SWAPPED and min(foreign) >= 1 - OTHER:
        reverse = f"{languages.target}-{languages.source}"
        raise UsageError(
            f"{name}: the sides are swapped: for {languages}, the source side is {languages.target} and the target "
            f"side {languages.source}; swap the files, or use {reverse}"
        )
    for side, shares, sure, asked in (
        ("source", of_source, foreign[0], languages.source),
        ("target", of_target, foreign[1], languages.target),
    ):
        if sure >= 1 - OTHER:
            _log.warning("%s: the %s side is probably %s, not %s", name, side, next(iter(shares)), asked)


def _joined(texts: list[str]) -> str:
    """The texts joined, truncated to `CHARACTERS`."""
    pieces, room = [], CHARACTERS
    for text in texts:
        if room <= 0:
            break
        pieces.append(text[:room])
        room -= len(text) + 1
    return " ".join(pieces)


def _letters(text: str) -> int:
    return sum(map(str.isalpha, text))
