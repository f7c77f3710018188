"""Translators of lines that need no model: one that copies, and one that does to spans whatever it can."""

import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from knnmt.corpus.segment import Segment
from knnmt.store.numbering import Match
from knnmt.text.carry import Languages
from knnmt.text.inline import Inline
from knnmt.text.words import Link, Pair, diagonal
from knnmt.translate import TranslateSettings, Translation
from knnmt.translate.pipeline import Pipeline


@dataclass
class Copying:
    """Gives every line back, each word in capitals; notes what it was asked for, and knows some segments."""

    settings: TranslateSettings = field(default_factory=TranslateSettings)
    known: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    change: Callable[[str], str] = str
    retrieves: bool = False
    whole: int = 0

    def translate(self, texts: Sequence[str], progress: Callable[[int], None] | None = None) -> list[Translation]:
        self.asked += texts
        if progress is not None:
            progress(len(texts))
        return [self._one(" ".join(text.split())) for text in texts]

    def _one(self, text: str) -> Translation:
        if text in self.known:
            target = self.known[text]
            return Translation(" ".join(target.split()), 0.0, (1,), match=Segment(text, target))
        others = tuple(Translation(self.change(text) + f" ({n})", -n, (1,)) for n in range(2, self.settings.n_best + 1))
        return Translation(self.change(text), -1.0, (1,), others)

    def matches(self, text: str) -> list[Match]:
        return [Match(0, Segment(text, self.known[text]))] if text in self.known else []


def by_place(pairs: Iterable[Pair]) -> dict[Pair, list[Link]]:
    """Links by the place of words."""
    return {pair: diagonal(*pair) for pair in pairs}


def through(lines: Copying, *units: Inline | str) -> list[Translation]:
    """Translations by the pipeline."""
    pipeline = Pipeline(lines, by_place, Languages("de", "en"))
    return pipeline.translate([Inline.plain(unit) if isinstance(unit, str) else unit for unit in units])


def mangled(seed: int) -> Callable[[str], str]:
    """What drops, doubles, moves and alters words and characters, and adds placeholders of its own."""

    def change(text: str) -> str:
        rng = random.Random(f"{seed} {text}")
        words = text.split()
        for _ in range(rng.randint(0, 4)):
            if not words:
                break
            at, to = rng.randrange(len(words)), rng.randrange(len(words))
            kind = rng.randrange(7)
            if kind == 0:
                del words[at]
            elif kind == 1:
                words.insert(to, words[at])
            elif kind == 2:
                words[at], words[to] = words[to], words[at]
            elif kind == 3:
                place = rng.randrange(len(words[at]))
                words[at] = words[at][:place] + rng.choice("x%{}<>&;1 s") + words[at][place + 1 :]
            elif kind == 4:
                words.insert(to, rng.choice(["%s", "{0}", "<b>", "</b>", "%", "&", "42", "\\n", "https://x.y"]))
            elif kind == 5:
                words = words[:at]
            else:
                words[at] = words[at][::-1]
        return " ".join(" ".join(words).split())

    return change
