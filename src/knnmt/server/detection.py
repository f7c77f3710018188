"""The language pair of a server: names, matching of language codes, language detection."""

from functools import cached_property
from typing import TYPE_CHECKING

import langcodes

from knnmt.errors import UsageError
from knnmt.languages import Languages, closeness, normal_tag
from knnmt.translate import Translator

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

CERTAIN = 0.9  # minimum confidence that a text is already in the target language
LOOKED_AT = 2000  # characters of a text that are read: more do not help
# py3langid's codes where they differ from the usual ones
_USUAL = {"no": "nb"}


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

    def listed(self) -> list[dict[str, object]]:
        """The answer of `/languages`."""
        return [
            {"code": self.source, "name": name_of(self.source), "targets": [self.target]},
            {"code": self.target, "name": name_of(self.target), "targets": []},
        ]

    def is_source(self, code: str) -> bool:
        """Whether a client's code means the source language: `de`, `DE`, `de_DE`."""
        return closeness(self.source, code) > 0

    def is_target(self, code: str) -> bool:
        """Whether a client's code means the target language."""
        return closeness(self.target, code) > 0

    @cached_property
    def _identifier(self) -> "LanguageIdentifier":
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)

    def detect(self, text: str) -> tuple[str, float]:
        """The most likely language, with a confidence from 0 to 1."""
        code, certainty = self._identifier.classify(text[:LOOKED_AT])
        code = _USUAL.get(code, code)
        own = next((tag for tag in (self.source, self.target) if closeness(tag, code)), code)
        return own, float(certainty)

    def guess(self, text: str) -> tuple[str, float]:
        """Which of the two languages a text is in: the source, unless it is clearly the target."""
        ranked = {_USUAL.get(code, code): float(p) for code, p in self._identifier.rank(text[:LOOKED_AT])}
        source, target = (ranked.get(tag.partition("-")[0], 0.0) for tag in (self.source, self.target))
        share = target / (source + target) if source + target > 0 else 0.0
        return (self.target, share) if share >= CERTAIN else (self.source, 1 - share)
