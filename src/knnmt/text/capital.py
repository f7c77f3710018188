"""The capital letter that a text begins with: one that the source has and its translation has lost is put back."""

import re

NOUNS = {"de", "lb"}  # languages that write nouns with a capital: a single word says nothing about the place it is for
_WORD = re.compile(r"[\w'’-]+")


def with_capital(source: str, target: str, language: str | None) -> str:
    """A translation, with a capital if the source begins with one. language: the source's.

    A word that is written with capitals inside (iPhone), or that the source has like this (apt), is a name: it stays.
    """
    first = target[:1]
    if not first.islower() or not source[:1].isupper() or len(first.upper()) != 1:
        return target
    if language is not None and language.partition("-")[0] in NOUNS and " " not in source.strip():
        return target
    match = _WORD.match(target)
    assert match is not None  # it begins with a letter
    word = match[0]
    return target if word != word.lower() or word in _WORD.findall(source) else first.upper() + target[1:]
