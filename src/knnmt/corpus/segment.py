"""What every reader gives and every later step takes: a segment."""

from dataclasses import dataclass

from knnmt.errors import DataError


@dataclass(frozen=True, slots=True)
class Segment:
    """One pair of texts that translate each other, and where it was read.

    `origin` is `file:line`, or `file#unit` in a format without meaningful lines; "" for a segment of no file.
    `date` stands as the file gives it. The texts are as in the file too: cleaning changes them, reading does not.
    """

    source: str
    target: str
    origin: str = ""
    id: str | None = None
    date: str | None = None


# What a reader finds where a segment should be: the segment, or the fault that makes it none. After a fault
# the next segment can still be read; a reader raises what is wrong with the whole file.
Found = Segment | DataError
