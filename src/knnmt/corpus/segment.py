"""A segment: a source text and its translation."""

from dataclasses import dataclass

from knnmt.errors import DataError


@dataclass(frozen=True, slots=True)
class Segment:
    """A source text, its translation, and where they were read.

    `origin` is `file:line`, or `file#unit` in formats without meaningful lines; "" if it is from no file. Texts and
    `date` are as in the file: cleaning changes them, reading does not.
    """

    source: str
    target: str
    origin: str = ""
    id: str | None = None
    date: str | None = None


Found = Segment | DataError
"""What a reader yields: a segment, or what is wrong with it. Errors of the whole file are raised instead."""
