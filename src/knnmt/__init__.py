"""Machine translation that adapts to your own translations at once, without training.

>>> from knnmt import Datastore, Translator
>>> store = Datastore.build("train.tmx", langs="de-en", out="store")
>>> Translator(store=store).translate(["Guten Morgen!"])[0].text
"""

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from knnmt.build.settings import BuildSettings
    from knnmt.corpus.segment import Segment
    from knnmt.datastore import Datastore
    from knnmt.errors import (
        DataError,
        KnnmtError,
        MissingExtraError,
        ModelError,
        SettingsError,
        StoreError,
        UsageError,
    )
    from knnmt.systems.settings import RetrievalSettings
    from knnmt.text.glossary import Glossary
    from knnmt.translate import TranslateSettings, Translation, Translator

__all__ = [
    "BuildSettings",
    "DataError",
    "Datastore",
    "Glossary",
    "KnnmtError",
    "MissingExtraError",
    "ModelError",
    "RetrievalSettings",
    "Segment",
    "SettingsError",
    "StoreError",
    "TranslateSettings",
    "Translation",
    "Translator",
    "UsageError",
    "__version__",
]

_HOMES = {
    **dict.fromkeys(
        ("DataError", "KnnmtError", "MissingExtraError", "ModelError", "SettingsError", "StoreError", "UsageError"),
        "errors",
    ),
    "BuildSettings": "build.settings",
    "Datastore": "datastore",
    "Glossary": "text.glossary",
    "RetrievalSettings": "systems.settings",
    "Segment": "corpus.segment",
    "TranslateSettings": "translate",
    "Translation": "translate",
    "Translator": "translate",
}

# oneDNN, which multiplies for torch on a CPU, and torch itself cache compiled code for the last 1,024 shapes, some
# 300 KB each. Texts of all lengths fill that cache with code that is never used again. Both read this at first use.
for _cache in ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY"):
    os.environ.setdefault(_cache, "64")

# torch's threads spin for some 5 ms when they have no work, and take the processor from everything else, above all from
# the compiled loops of a lookup. A much shorter spin is enough.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "5000")

__version__: str


def __getattr__(name: str) -> Any:
    """Import a name's module, and torch with it, only when the name is used, so that `knnmt --help` answers at once."""
    if name in _HOMES:
        return getattr(import_module(f"knnmt.{_HOMES[name]}"), name)
    if name == "__version__":
        return _version()
    raise AttributeError(f"module 'knnmt' has no attribute {name!r}")


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version  # as slow as all of `knnmt --help`

    try:
        return version("knnmt")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0"


def __dir__() -> list[str]:
    return __all__
