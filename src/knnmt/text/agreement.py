"""German articles and adjectives that agree with another noun: the same case and number, in each gender.

A term that takes the place of a noun may have another gender: «der neue Ordner» becomes «das neue Verzeichnis». What a
form leaves open stays open: «die» is feminine or plural, nominative or accusative.
"""

import re
from collections.abc import Iterator
from typing import NamedTuple

PLURAL = 3  # behind masculine, feminine and neuter
ADJECTIVES = 2  # between an article and its noun, at most
_ADJECTIVE = re.compile(r"([^\W\d_A-Z]{2,}?)(e[mnrs]?)")


class Cell(NamedTuple):
    """A cell of a paradigm: the article, and the ending of adjectives behind it."""

    case: int
    gender: int
    article: str
    ending: str


def _cells(stem: str, articles: str, endings: str) -> list[Cell]:
    """A paradigm, by lines of nominative, accusative, dative and genitive; `-` is no ending, `*` no form."""
    lines = zip(articles.split("|"), endings.split("|"), strict=True)
    return [
        Cell(case, gender, stem + article.replace("-", ""), ending)
        for case, (some, others) in enumerate(lines)
        for gender, (article, ending) in enumerate(zip(some.split(), others.split(), strict=True))
        if article != "*"
    ]


_WEAK = "e e e en|en e e en|en en en en|en en en en"  # endings behind «der»
_MIXED = "er e es en|en e es en|en en en en|en en en en"  # behind «ein»
_DEFINITE = _cells("", "der die das die|den die das die|dem der dem den|des der des der", _WEAK)
_POINTING = {
    stem: _cells(stem, "er e es e|en e es e|em er em en|es er es er", _WEAK) for stem in ("dies", "jed", "jen", "welch")
}
_POSSESSIVE = {
    stem: _cells(stem, f"- e - {plural}|en e - {plural}|em er em {many}|es er es {some}", _MIXED)
    for stem, plural, many, some in [
        ("ein", "*", "*", "*"),
        *((s, "e", "en", "er") for s in "kein mein dein sein ihr unser".split()),
    ]
}
_PARADIGMS = [_DEFINITE, *_POINTING.values(), *_POSSESSIVE.values()]
_CONTRACTED = {
    "in dem": "im", "in das": "ins", "an dem": "am", "an das": "ans", "zu dem": "zum", "zu der": "zur",
    "von dem": "vom", "bei dem": "beim",
}  # fmt: skip
_SPELT_OUT = {short: full.split() for full, short in _CONTRACTED.items()}


def agreeing(before: str) -> tuple[int, list[str]]:
    """Where the article of a noun begins in the text before it, and what may stand from there on: in each gender.

    >>> agreeing("Öffne den neuen")
    (6, ['den neuen', 'die neue', 'das neue'])

    Where there is no article, that is the end of the text, and nothing.
    """
    words = [(found[0], found.start()) for found in re.finditer(r"\S+", before)]
    for count in range(min(ADJECTIVES + 1, len(words))):
        article, start = words[-1 - count]
        adjectives = [_ADJECTIVE.fullmatch(word) for word, _ in words[len(words) - count :]]
        if not all(adjectives):
            break
        preposition, known = _SPELT_OUT.get(article.lower(), ("", article.lower()))
        if (
            not preposition
            and len(words) > count + 1
            and words[-2 - count][0].lower() in ("in", "an", "zu", "von", "bei")
        ):
            preposition = words[-2 - count][0].lower()
            start = words[-2 - count][1]
        endings = {found[2] for found in adjectives if found is not None}
        stems = [found[1] for found in adjectives if found is not None]
        variants = list(dict.fromkeys(_variants(known, endings, stems, preposition)))
        if variants:
            capital = before[start].isupper()
            return start, [text[:1].upper() + text[1:] if capital else text for text in variants]
    return len(before), []


def _variants(article: str, endings: set[str], stems: list[str], preposition: str) -> Iterator[str]:
    """The phrase first, and then in the other genders, for each case and number that it may have."""
    for paradigm in _PARADIGMS:
        same = [
            cell
            for cell in paradigm
            if cell.article == article and endings <= {cell.ending} and (not preposition or cell.case in (1, 2))
        ]
        for cell in (*same, *(each for one in same for each in paradigm if _agrees(one, each))):
            phrase = f"{preposition} {cell.article}".strip()
            yield " ".join([_CONTRACTED.get(phrase, phrase), *(stem + cell.ending for stem in stems)])


def _agrees(one: Cell, other: Cell) -> bool:
    return one.case == other.case and (one.gender == PLURAL) == (other.gender == PLURAL)
