"""Who taught a segment, and when: written at the end of its origin, so that it stays with it wherever it goes.

`suggested (anna, 2026-11-16T16:40:12Z)` is a suggestion of anna's.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from knnmt.corpus.segment import Segment

_SIGNED = re.compile(r"(?P<origin>.*?) ?\((?P<author>\S+), (?P<date>\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ)\)", re.DOTALL)


class Signature(NamedTuple):
    """An origin taken apart; author and date (ISO 8601, UTC) are None where nobody signed."""

    origin: str
    author: str | None = None
    date: str | None = None


def signature(origin: str) -> Signature:
    """Who signed an origin, and when."""
    match = _SIGNED.fullmatch(origin)
    return Signature(origin) if match is None else Signature(match["origin"], match["author"], match["date"])


def signed(segment: Segment, author: str, when: datetime | None = None) -> Segment:
    """A segment with the name of who taught it; an earlier signature is replaced. Without a name it stays unsigned."""
    plain = signature(segment.origin).origin
    if not author:
        return replace(segment, origin=plain)
    date = (when or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")
    return replace(segment, origin=f"{plain} ({author}, {date})".lstrip())
