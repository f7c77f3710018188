"""Machine translation that adapts to your own translations at once, without training.

>>> from knnmt import Translator
>>> Translator("mini-de-en").translate(["Guten Morgen!"])[0].text
"""

from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnmt.translate import TranslateSettings, Translation, Translator

__all__ = ["TranslateSettings", "Translation", "Translator", "__version__"]

try:
    __version__ = version("knnmt")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0"


def __getattr__(name: str) -> Any:
    """Import torch only when a translator is asked for: `knnmt --help` answers at once."""
    if name in ("TranslateSettings", "Translation", "Translator"):
        from knnmt import translate

        return getattr(translate, name)
    raise AttributeError(f"module 'knnmt' has no attribute {name!r}")
