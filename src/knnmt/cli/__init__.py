"""The command line: each command is a few lines that call the library, which is imported only then.

Exit codes: 0 success, 1 failure, 2 wrong usage; 130 after Ctrl-C.
"""

# the commands register themselves
from knnmt.cli import bench, corpora, demo, evaluation, memory, reproduce, serve, stores, translation  # noqa: F401
from knnmt.cli.app import app


def main() -> None:
    """The entry point of `knnmt`."""
    app()
