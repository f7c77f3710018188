"""What every reader gives and every later step takes: a segment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Segment:
    """One pair of texts that translate each other, and where it was read.

    `origin` is `file:line`, or `file#unit` in a format without meaningful lines. `date` stands as the
    file gives it. The texts are as in the file too: cleaning changes them, reading does not.
    """

    source: str
    target: str
    origin: str
    id: str | None = None
    date: str | None = None
