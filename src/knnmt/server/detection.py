"""Languages of a server: names, matching of language codes, and detection among all languages of the detector."""

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import langcodes

from knnmt.errors import UsageError
from knnmt.languages import Languages, closeness, normal_tag
from knnmt.translate import Translator

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

CERTAIN = 0.9  # minimum confidence that a text is already in the target language
FOREIGN = 0.1  # a text is in none of the server's languages if all of them together are less likely than this
OWN = 10.0  # how much more likely a language of the server is than another, before the text is read
LOOKED_AT = 2000  # characters of a text that are read: more do not help
# py3langid's codes where they differ from the usual ones
_USUAL = {"no": "nb", "wuu": "zh", "yue": "zh"}


def languages_of(translator: Translator, asked: str | None = None) -> Languages:
    """The language pair of a server: as asked for, else the store's, else the model's."""
    if asked is not None:
        return Languages.parse(asked)
    if translator.store is not None:
        return Languages.parse(translator.store.manifest.languages)
    source, target = translator.model.tokenizer.source, translator.model.tokenizer.target
    if source is None or target is None:
        raise UsageError(f"{translator.model.name} does not specify its languages: set --langs")
    return Languages(normal_tag(source), normal_tag(target))


def name_of(tag: str) -> str:
    """A language in English, `Portuguese (Brazil)`; the tag itself where it names no language."""
    return langcodes.Language.get(tag).display_name() if langcodes.tag_is_valid(tag) else tag


class Pair:
    """The source and the target language of a server."""

    def __init__(self, languages: Languages) -> None:
        self.languages = languages
        self.source, self.target = languages.source, languages.target

    def is_source(self, code: str) -> bool:
        """Whether a client's code means the source language: `de`, `DE`, `de_DE`."""
        return closeness(self.source, code) > 0

    def is_target(self, code: str) -> bool:
        """Whether a client's code means the target language."""
        return closeness(self.target, code) > 0


# ---------------------------------------------------------------------------------------------------------- detection


class Detected(NamedTuple):
    """A language, and how likely it is, from 0 to 1."""

    language: str
    confidence: float


@lru_cache(maxsize=1)
def _identifier() -> "LanguageIdentifier":
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


def ranked(text: str, own: Collection[str]) -> list[Detected]:
    """All languages of the detector, the most likely first; those of the server have its tags."""
    weights: dict[str, float] = {}
    for code, share in _identifier().rank(text[:LOOKED_AT]):
        usual = _USUAL.get(code, code)
        tag = next((tag for tag in own if closeness(tag, usual)), None)
        weights[tag or usual] = weights.get(tag or usual, 0.0) + float(share) * (OWN if tag else 1.0)
    total = sum(weights.values())
    found = [Detected(tag, weight / total) for tag, weight in weights.items()]
    return sorted(found, key=lambda each: -each.confidence)


def foreign(texts: Sequence[str], own: Collection[str]) -> str | None:
    """The language of texts that are clearly in none of the server's languages, taken together; else None."""
    found = ranked("\n".join(texts)[:LOOKED_AT], own)
    known = sum(each.confidence for each in found if each.language in own)
    return found[0].language if known < FOREIGN else None


def detected(text: str, sources: Collection[str], target: str) -> Detected:
    """Which of the server's languages a text is in: the likeliest source, unless it is clearly the target."""
    own = {*sources, target}
    shares = {each.language: each.confidence for each in ranked(text, own)}
    total = sum(shares.get(tag, 0.0) for tag in own) or 1.0
    if shares.get(target, 0.0) / total >= CERTAIN:
        return Detected(target, shares[target] / total)
    best = max(sources, key=lambda tag: shares.get(tag, 0.0))
    return Detected(best, shares.get(best, 0.0) / total)
