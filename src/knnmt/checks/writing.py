"""Checks of how a translation is written: punctuation, brackets, quotes, white space, doubled words."""

import re
from collections import Counter
from collections.abc import Iterator

from knnmt.checks.pair import Pair

# marks of several scripts that mean the same
SAME = str.maketrans(dict(zip("。．।？؟！：；؛（）［］｛｝", "...??!:;;()[]{}", strict=True)))
ENDS = frozenset(".?!:;…")
CLOSING = "\"'”“’‘»«›‹」』)]}>*_`"
NO_STOP = frozenset("th lo km my".split())  # languages that end no sentence with a full stop
BRACKETS = (("(", ")"), ("[", "]"), ("{", "}"))
QUOTES = re.compile('["„“”‟«»「」『』]')
DOUBLED = re.compile(r"(?<![\w'’-])([^\W\d_]{2,})\s+\1(?![\w'’-])", re.IGNORECASE)
# words that may stand twice: `that that`, `die die`
TWICE = {
    "en": "that had",
    "de": "die der das den dem sie",
    "nl": "die dat",
    "fr": "nous vous",
    "sv": "som det",
}
SPACES = re.compile(r"(?<=\S) {2,}(?=\S)")
BEFORE_MARK = re.compile(r"(?<=\w) +[,;:!?](?=\s|$)")
SPACED_MARKS = frozenset(["fr"])  # languages that write a space before `;`, `:`, `!` and `?`


def punctuation(pair: Pair) -> Iterator[str]:
    """The same mark at the end."""
    if pair.target.language in NO_STOP or not pair.target.text.strip():
        return
    ours, theirs = (_end(side.text) for side in (pair.source, pair.target))
    if pair.target.language == "el":  # its question mark is a semicolon
        theirs = theirs.replace(";", "?")
    if ours != theirs:
        yield f"the source ends with {ours or 'no mark'}, the translation with {theirs or 'no mark'}"


def _end(text: str) -> str:
    """The mark at the end of a text, behind which only quotes and brackets are; "" for none."""
    text = text.translate(SAME).replace("...", "…").rstrip().rstrip(CLOSING).rstrip()
    return text[-1] if text and text[-1] in ENDS else ""


def brackets(pair: Pair) -> Iterator[str]:
    """Brackets in pairs, unless the source has such without a partner too: `a)`."""
    ours, theirs = (Counter(side.prose.translate(SAME)) for side in (pair.source, pair.target))
    for opening, closing in BRACKETS:
        more = theirs[opening] - theirs[closing]
        if more and more != ours[opening] - ours[closing]:
            yield f"{opening if more > 0 else closing} has no partner"


def quotes(pair: Pair) -> Iterator[str]:
    """Quotation marks in pairs, unless the source has a single one too."""
    ours, theirs = (len(QUOTES.findall(side.prose)) for side in (pair.source, pair.target))
    if theirs % 2 and not ours % 2:
        yield "a quotation mark has no partner"


def space(pair: Pair) -> Iterator[str]:
    """The same white space around the text, and none too much inside."""
    source, target = pair.source.filled, pair.target.filled
    if not pair.target.text.strip():
        return
    for where, ours, theirs in (
        ("begins", source[: len(source) - len(source.lstrip())], target[: len(target) - len(target.lstrip())]),
        ("ends", source[len(source.rstrip()) :], target[len(target.rstrip()) :]),
    ):
        if ours.count("\n") != theirs.count("\n") or (ours != theirs and "\n" not in ours):  # indentation is free
            yield f"the source {where} with {_named(ours)}, the translation with {_named(theirs)}"
    if SPACES.search(target) and not SPACES.search(source):
        yield "several spaces between words"
    if BEFORE_MARK.search(target) and not BEFORE_MARK.search(source) and pair.target.language not in SPACED_MARKS:
        yield "a space before a punctuation mark"


def _named(space: str) -> str:
    return repr(space) if space else "no white space"


def repeated(pair: Pair) -> Iterator[str]:
    """No word twice in a row, unless the source has such."""
    if DOUBLED.search(pair.source.prose):
        return
    usual = TWICE.get(pair.target.language or "", "").split()
    yield from (
        f"«{found[0]}»: a word is doubled"
        for found in DOUBLED.finditer(pair.target.prose)
        if found[1].lower() not in usual
    )
