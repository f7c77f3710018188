"""What failed unexpectedly: what is logged of it, and what a client is told. Nothing of a request's text is logged."""

import errno
import logging
import traceback
from pathlib import Path

FAILED = "internal error; see the server's log"
NO_ROOM = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM}  # of a disk


def unwritable(error: BaseException) -> str | None:
    """What to tell a client if the disk cannot be written to; None if that is not what failed."""
    if not isinstance(error, OSError) or error.errno not in NO_ROOM:
        return None
    return f"the server cannot write to its disk: {error.strerror}"


def log_failure(log: logging.Logger, error: BaseException) -> None:
    """Log the traceback without the message, which may contain text of a request.

    A disk that cannot be written to is no bug, and refuses every lesson: that is one line, with the folder.
    """
    if unwritable(error) and isinstance(error, OSError):
        place = Path(error.filename).parent if isinstance(error.filename, str) else "the disk"
        log.error("cannot write to %s: %s", place, error.strerror)
    else:
        log.error("%s\n%s", type(error).__name__, "".join(traceback.format_tb(error.__traceback__)))
