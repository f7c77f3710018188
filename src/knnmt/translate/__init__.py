"""Texts in, translations out.

`Translator` is the door. A text goes through the pipeline (`pipeline`), which keeps white space, splits sentences and
protects spans, and asks for translations of lines (`lines`): as the store has them verbatim, or by the search
(`search`).
"""

from knnmt.decode.settings import TranslateSettings
from knnmt.translate.result import InlineTranslation, Translation
from knnmt.translate.translator import Translator

__all__ = ["InlineTranslation", "TranslateSettings", "Translation", "Translator"]
