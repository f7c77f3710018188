"""Cleaning as in the paper's section 4.1: bad translation pairs are dropped and counted."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from hashlib import blake2b

from pydantic import Field, field_validator

from knnmt.corpus.identify import Identifier
from knnmt.corpus.punctuation import normalize_punctuation
from knnmt.corpus.segment import Segment
from knnmt.languages import Languages
from knnmt.settings import ALL, Settings

# Scripts written without spaces: Thai, Lao, Burmese, Khmer, kana, Chinese characters.
UNSPACED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")


class CleanSettings(Settings):
    """Which filters run. The defaults are the paper's rules, relaxed for very short texts."""

    normalize_punctuation: bool = Field(default=True, description="bring quotes, dashes and spaces to one form")
    drop_empty: bool = Field(default=True, description="drop segments with nothing on one side")
    max_tokens: int | None = Field(default=250, ge=1, description="maximum tokens per side; null for no limit")
    max_ratio: float | None = Field(default=1.5, ge=1, description="maximum length ratio of the two sides")
    ratio_from: int = Field(
        default=10, ge=1, description="tokens of the longer side from which the length ratio is checked"
    )
    drop_duplicates: bool = Field(default=True, description="drop repeated segments")
    check_language: bool = Field(default=True, description="drop segments with a side in the wrong language")
    language_from: int = Field(
        default=4, ge=1, description="words of both sides from which swapped languages are detected"
    )
    language_certainty: float = Field(
        default=0.9, gt=0.5, le=1, description="minimum confidence that a side is in the other language"
    )
    foreign_from: int = Field(default=6, ge=1, description="words of a side from which a third language is detected")
    foreign_certainty: float = Field(
        default=0.98, gt=0.5, le=1, description="minimum confidence that a side is in a third language"
    )

    @field_validator("max_tokens", "max_ratio", mode="before")
    @classmethod
    def _all(cls, given: object) -> object:
        return None if given == ALL else given

    @property
    def only_normalizing(self) -> "CleanSettings":
        """The same without filters, for a corpus that is already clean."""
        off = {"drop_empty": False, "drop_duplicates": False, "check_language": False}
        return self.model_copy(update={**off, "max_tokens": None, "max_ratio": None})


class Reason(StrEnum):
    """Why a segment was dropped."""

    UNREADABLE = "unreadable"  # counted by the reader: cleaning never sees such a segment
    EMPTY = "empty"
    TOO_LONG = "too long"
    RATIO = "length ratio"
    DUPLICATE = "duplicate"
    LANGUAGE = "language"


@dataclass(slots=True)
class CleanReport:
    """How many segments were kept, and how many were dropped, by reason; updated while cleaning runs."""

    kept: int = 0
    dropped: Counter[Reason] = field(default_factory=Counter)

    @property
    def seen(self) -> int:
        """Segments kept or dropped so far."""
        return self.kept + self.dropped.total()

    def __str__(self) -> str:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in self.dropped.most_common())
        return f"kept {self.kept:,} of {self.seen:,} segments" + (f"; dropped {reasons}" if reasons else "")


def count_words(text: str) -> int:
    """Count words separated by spaces; in scripts without spaces, two characters count as a word."""
    if text.isascii():
        return len(text.split())
    runs = _UNSPACED_RUN.findall(text)
    if not runs:
        return len(text.split())
    return len(_UNSPACED_RUN.sub(" ", text).split()) + sum((len(run) + 1) // 2 for run in runs)


# A check returns why a segment is bad, or None.
_Check = Callable[[Segment], Reason | None]


def clean(
    segments: Iterable[Segment],
    languages: Languages,
    settings: CleanSettings | None = None,
    length: Callable[[str], int] = count_words,
    report: CleanReport | None = None,
) -> Iterator[Segment]:
    """Stream the good segments, normalised; the others are counted in `report` by their first fault.

    `length` counts the tokens of a text: pass a model's tokenizer to apply the limits to its tokens.
    """
    return (normalized for _, normalized in cleaned(segments, languages, settings, length, report))


def cleaned(
    segments: Iterable[Segment],
    languages: Languages,
    settings: CleanSettings | None = None,
    length: Callable[[str], int] = count_words,
    report: CleanReport | None = None,
) -> Iterator[tuple[Segment, Segment]]:
    """`clean`, but give each segment both as it was and normalised: a store returns texts as they were."""
    settings = settings or CleanSettings()
    report = report if report is not None else CleanReport()
    checks = _checks(languages, settings, length)
    for segment in segments:
        normalized = _normalized(segment) if settings.normalize_punctuation else segment
        reason = next(filter(None, (check(normalized) for check in checks)), None)
        if reason is not None:
            report.dropped[reason] += 1
        else:
            report.kept += 1
            yield segment, normalized


def _normalized(segment: Segment) -> Segment:
    source, target = normalize_punctuation(segment.source), normalize_punctuation(segment.target)
    if source == segment.source and target == segment.target:
        return segment
    return replace(segment, source=source, target=target)


def _checks(languages: Languages, settings: CleanSettings, length: Callable[[str], int]) -> list[_Check]:
    """The enabled checks, the most expensive last."""
    checks: list[_Check] = []
    if settings.drop_empty:
        checks.append(_empty)
    if settings.max_tokens is not None or settings.max_ratio is not None:
        checks.append(partial(_unfit_length, settings=settings, length=length))
    if settings.drop_duplicates:
        checks.append(partial(_duplicate, seen=set()))
    if settings.check_language and (wrong := _wrong_language(languages, settings)):
        checks.append(wrong)
    return checks


def _empty(segment: Segment) -> Reason | None:
    return None if segment.source.strip() and segment.target.strip() else Reason.EMPTY


def unfit(source_tokens: int, target_tokens: int, settings: CleanSettings) -> Reason | None:
    """Check a pair by its lengths alone: TOO_LONG, RATIO or None."""
    shorter, longer = sorted((source_tokens, target_tokens))
    if settings.max_tokens is not None and longer > settings.max_tokens:
        return Reason.TOO_LONG
    if settings.max_ratio is not None and longer >= settings.ratio_from and longer > settings.max_ratio * shorter:
        return Reason.RATIO
    return None


def _unfit_length(segment: Segment, *, settings: CleanSettings, length: Callable[[str], int]) -> Reason | None:
    return unfit(length(segment.source), length(segment.target), settings)


def _duplicate(segment: Segment, *, seen: set[bytes]) -> Reason | None:
    """Check for a repeated segment by 8-byte digests, which take about 100 bytes in a set: 1 GB for 10 million.

    Of 10 million segments, two collide (and one is lost) in one corpus of 370,000.
    """
    texts = f"{segment.source}\0{segment.target}".encode(errors="surrogatepass")
    digest = blake2b(texts, digest_size=8).digest()
    if digest in seen:
        return Reason.DUPLICATE
    seen.add(digest)
    return None


def _wrong_language(languages: Languages, settings: CleanSettings) -> _Check | None:
    """Make the language check, or None if the identifier does not support the pair.

    Short sides are checked for being swapped, between the two languages only. Longer ones are also checked on their
    own, among all languages.
    """
    identifier = Identifier.of(languages)
    if identifier is None:
        return None

    def check(segment: Segment) -> Reason | None:
        words = [count_words(segment.source), count_words(segment.target)]
        both = min(words) >= settings.language_from
        for text, code, count in zip(
            (segment.source, segment.target), (identifier.source, identifier.target), words, strict=True
        ):
            long = count >= settings.foreign_from
            if not both and not long:
                continue
            shares = identifier.shares(text)
            if both and identifier.is_other(shares, code) >= settings.language_certainty:
                return Reason.LANGUAGE
            if long and identifier.is_foreign(shares, code) >= settings.foreign_certainty:
                return Reason.LANGUAGE
        return None

    return check
