"""The command line: each command is a few lines that call the library, which is imported only then.

Exit codes: 0 success, 1 failure, 2 wrong usage; 130 after Ctrl-C.
"""

import gc

# the commands register themselves
from knnmt.cli import (  # noqa: F401
    analyze,
    backup,
    bench,
    check,
    corpora,
    demo,
    evaluation,
    glossary,
    memory,
    reproduce,
    serve,
    stores,
    translation,
)
from knnmt.cli.app import app

COLLECTED = 50_000, 20, 100  # allocations, and collections of the younger objects, between two collections


def main() -> None:
    """The entry point of `knnmt`."""
    # what is imported stays: to look through all of it for garbage takes a third of a second, in the first translation
    gc.set_threshold(*COLLECTED)
    app()
