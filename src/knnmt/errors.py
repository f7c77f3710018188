"""The errors a user can meet. Each message says what is wrong, where, and what to do.

The command line prints the message on one line and exits with the class's `exit_code`:
2 where the call itself is wrong (a missing file, an unknown language), 1 where the work failed.
"""


class KnnmtError(Exception):
    """Anything that knnmt refuses or fails to do for a reason it can name."""

    exit_code = 1


class UsageError(KnnmtError):
    """What was asked for cannot be meant: a file that is not there, settings that contradict."""

    exit_code = 2


class DataError(KnnmtError):
    """A file's content is not what its name says: names the file, the line and the reason."""


class ModelError(KnnmtError):
    """A model cannot be found or loaded, or is no translation model that knnmt can run."""


class MissingExtraError(KnnmtError):
    """An optional dependency is needed and not installed: names the extra that brings it."""


class StoreError(KnnmtError):
    """A datastore is not there, damaged, of a newer format, or made with another model: says which."""
