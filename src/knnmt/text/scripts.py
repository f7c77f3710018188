"""Text in another script than the source language's: a model has not learnt it, and invents translations for it."""

import re
from functools import lru_cache

from langcodes import Language
from langcodes.tag_parser import LanguageTagError

# ranges of the scripts that models are most often asked for in vain; Latin is at home in every text
SCRIPTS = {
    "Grek": "\u0370-\u03ff\u1f00-\u1fff", "Cyrl": "\u0400-\u052f", "Armn": "\u0530-\u058f", "Hebr": "\u0590-\u05ff",
    "Arab": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc", "Deva": "\u0900-\u097f",
    "Beng": "\u0980-\u09ff", "Guru": "\u0a00-\u0a7f", "Gujr": "\u0a80-\u0aff", "Taml": "\u0b80-\u0bff",
    "Telu": "\u0c00-\u0c7f", "Knda": "\u0c80-\u0cff", "Mlym": "\u0d00-\u0d7f", "Sinh": "\u0d80-\u0dff",
    "Thai": "\u0e00-\u0e7f", "Laoo": "\u0e80-\u0eff", "Tibt": "\u0f00-\u0fff", "Mymr": "\u1000-\u109f",
    "Geor": "\u10a0-\u10ff", "Ethi": "\u1200-\u137f", "Khmr": "\u1780-\u17ff",
    "Hang": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af", "Kana": "\u3041-\u30ff",
    "Hani": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff",
}  # fmt: skip
WRITTEN_WITH = {  # scripts of languages that use several, and those that contain others
    "Jpan": ("Kana", "Hani"), "Kore": ("Hang", "Hani"), "Hans": ("Hani",), "Hant": ("Hani",), "Hira": ("Kana",),
}  # fmt: skip


@lru_cache(maxsize=256)
def foreign(language: str | None) -> re.Pattern[str] | None:
    """A run of words in scripts that a language is not written in; None where the language is unknown."""
    script = _script(language) if language else None
    if script is None:
        return None
    own = WRITTEN_WITH.get(script, (script,))
    letters = "".join(ranges for name, ranges in SCRIPTS.items() if name not in own)
    return re.compile(f"[{letters}](?:[{letters}\\s,.;:!?،؛؟。、·’'\"-]*[{letters}])?")


def _script(language: str) -> str | None:
    try:
        return Language.get(language).maximize().script
    except LanguageTagError:
        return None
