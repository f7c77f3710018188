"""Numbers of a text and of its translation: the same digits, however they are grouped, or the same number in words."""

import re
from collections import Counter
from collections.abc import Sequence

DIGITS = r"\d{1,3}(?:[ \u00a0\u202f]\d{3})+(?!\d|[.,]\d)|\d+(?:[.,:]\d+)*"  # 10 000 is one number
GROUPS = re.compile(rf"(?<!\d)(?:{DIGITS})")
MINUS = ("-", "−")
COMMA = frozenset("bg cs da de el es fi fr hr hu id it lt lv nb nl nn no pl pt ro ru sk sl sr sv tr uk vi".split())
POINT = frozenset("en he ja ko th zh".split())
_CERTAIN_COMMA = re.compile(r"[-−+]?\d+,(?:\d{1,2}|\d{4,})")  # three digits may be thousands, copied from English
_GROUPED = {mark: re.compile(rf"[-−+]?\d{{1,3}}(?:\{mark}\d{{3}})+") for mark in ".,"}
_SWAP = str.maketrans(".,", ",.")
_EN = (
    "zero one|once|first|single|a|an two|second|twice|both|double three|third|triple four|fourth|quarter five|fifth "
    "six|sixth seven|seventh eight|eighth nine|ninth ten|tenth eleven|eleventh twelve|twelfth|dozen "
    "thirteen|thirteenth fourteen|fourteenth fifteen|fifteenth sixteen|sixteenth seventeen|seventeenth "
    "eighteen|eighteenth nineteen|nineteenth twenty|twentieth"
)
_DE = (
    "null ein\\w*|erst\\w* zwei\\w*|beide\\w*|doppel\\w* drei\\w*|dritt\\w* vier\\w* fünf\\w* sechs\\w* "
    "sieben\\w*|siebt\\w* acht\\w* neun\\w* zehn\\w* elf\\w* zwölf\\w*|dutzend dreizehn\\w* vierzehn\\w* fünfzehn\\w* "
    "sechzehn\\w* siebzehn\\w* achtzehn\\w* neunzehn\\w* zwanzig\\w*"
)
_LARGE = {
    "en": {30: "thirty", 40: "forty", 50: "fifty", 60: "sixty", 70: "seventy", 80: "eighty", 90: "ninety",
           100: "hundred", 1000: "thousand"},
    "de": {30: "dreißig", 40: "vierzig", 50: "fünfzig", 60: "sechzig", 70: "siebzig", 80: "achtzig", 90: "neunzig",
           100: "hundert", 1000: "tausend"},
}  # fmt: skip
WORDS = {language: dict(enumerate(small.split())) | _LARGE[language] for language, small in (("en", _EN), ("de", _DE))}
SMALL = 12  # up to here other languages may write a number in words


def converted(number: str, source: str | None, target: str | None) -> str:
    """A number as the target language writes it, where it is certain what its comma or point means; else as it is."""
    if source in COMMA and target in POINT:
        certain = _CERTAIN_COMMA.fullmatch(number) or _mixed(number, ".", ",") or _thousands(number, ".")
    elif source in POINT and target in COMMA:
        certain = _mixed(number, ",", ".") or _thousands(number, ",")
    else:
        certain = None
    return number.translate(_SWAP) if certain else number


def _mixed(number: str, group: str, decimal: str) -> re.Match[str] | None:
    whole, mark, rest = number.partition(decimal)
    return _GROUPED[group].fullmatch(whole) if mark and rest.isdigit() else None


def _thousands(number: str, group: str) -> re.Match[str] | None:
    return _GROUPED[group].fullmatch(number) if number.count(group) > 1 or number.endswith(f"{group}000") else None


def lost(numbers: Sequence[str], target: str, language: str | None) -> list[str]:
    """The numbers that a translation into this language has neither in digits nor in words."""
    found = Counter(_key(group) for group in GROUPS.findall(target))
    missing = []
    for number in numbers:
        key = _key(number)
        if found[key] and (not number.startswith(MINUS) or _negative(key, target)):
            found[key] -= 1
        elif not _in_words(key, target, language):
            missing.append(number)
    return missing


def mended(numbers: Sequence[str], target: str, source_language: str | None, language: str | None) -> str | None:
    """The translation with its numbers as in the source; None where that is not possible.

    Only where a single number is wrong is it certain which one.
    """
    missing = lost(numbers, target, language)
    if not missing:
        return target
    expected = Counter(map(_key, numbers))
    foreign = []
    for group in GROUPS.finditer(target):
        if expected[_key(group[0])] > 0:
            expected[_key(group[0])] -= 1
        else:
            foreign.append(group)
    if len(missing) > 1 or len(foreign) > 1:
        return None
    if foreign:
        start, end = foreign[0].span()
        better = target[:start] + converted(missing[0], source_language, language) + target[end:]
        joins = better[start - 1 : start].isalnum()
        return None if joins or lost(numbers, better, language) else better
    return None


def _digits(number: str) -> str:
    return "".join(filter(str.isdigit, number))


def _key(number: str) -> str:
    return _digits(number).lstrip("0") or "0"


def _negative(key: str, target: str) -> bool:
    """Whether a number of these digits has a minus."""
    signed = re.finditer(rf"(?:(?<![\w.,])[-−–]\s?|minus\s+|below\s+)({DIGITS})", target, re.IGNORECASE)
    return any(_key(found[1]) == key for found in signed)


def _in_words(key: str, target: str, language: str | None) -> bool:
    value = int(key) if len(key) < 5 else 10**6
    if language not in WORDS:
        return value <= SMALL
    words = WORDS[language].get(value)
    return words is not None and re.search(rf"\b(?:{words})\b", target, re.IGNORECASE) is not None
