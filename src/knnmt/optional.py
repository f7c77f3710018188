"""Libraries that come with an extra: imported when they are used, and named with their extra when missing."""

from importlib import import_module
from typing import Any

from knnmt.errors import MissingExtraError


def require(library: str, *, extra: str) -> Any:
    """Import a library of an extra, or say how to install it."""
    try:
        return import_module(library)
    except ModuleNotFoundError as error:
        if error.name != library.partition(".")[0]:  # it is there, and lacks something itself
            raise
        raise MissingExtraError(f"{library} is not installed: pip install 'knnmt[{extra}]'") from None
