"""Texts in, translations out.

`Translator` is the entry point. A text goes through the pipeline (`pipeline`), which keeps white space, splits
sentences and protects spans. The pipeline gets translations of lines (`lines`) verbatim from the store, or by the
search (`search`).
"""

from knnmt.decode.settings import TranslateSettings
from knnmt.translate.result import InlineTranslation, Translation
from knnmt.translate.translator import Translator

__all__ = ["InlineTranslation", "TranslateSettings", "Translation", "Translator"]
