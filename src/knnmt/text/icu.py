"""ICU messages: `{n, plural, one {# file} other {# files}}`, whose branches are translated one by one.

Text around an argument is moved into its branches, as ICU recommends: a sentence is translated as a whole then.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from knnmt.text.held import Held, Item

HEAD = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset:\d+\s*)?")
SELECTOR = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")
SIGNS = re.compile(r"''|'(?=[{}#|])|[{}]")
QUOTED = re.compile(r"'[{}#|]")  # the start of a quotation: its braces are text
NUMBER = re.compile("#")
GROUP = re.compile(r"\{[^{}]*\}")
LETTER = re.compile(r"[^\W\d_]")
LONGEST = 4000  # characters of an argument
MOST = 60  # branches of a message


class Branch(NamedTuple):
    """A branch of an argument: its selector, and where its message begins and ends."""

    selector: str
    start: int
    end: int


class Argument(NamedTuple):
    """An argument with branches, from its opening brace to the place behind its closing one."""

    name: str
    kind: str  # plural, selectordinal, select
    start: int
    end: int
    branches: tuple[Branch, ...]


def argument(text: str, start: int = 0) -> Argument | None:
    """The argument whose opening brace is at `start`; None where there is none, or it is malformed."""
    head = HEAD.match(text, start)
    if head is None:
        return None
    at, branches = head.end(), list[Branch]()
    while selector := SELECTOR.match(text, at):
        end = closing(text, selector.end(), start)
        if end < 0:
            return None
        branches.append(Branch(selector[1], selector.end(), end))
        at = end + 1
    tail = re.compile(r"\s*\}").match(text, at)
    named = {branch.selector for branch in branches}
    if tail is None or "other" not in named or len(named) < len(branches):
        return None
    return Argument(head[1], head[2], start, tail.end(), tuple(branches))


class Piece(NamedTuple):
    """A piece of a message: text of a branch, or syntax, which is kept. `numbered`: a `#` in it is the number."""

    text: str
    kept: bool = False
    numbered: bool = False


def pieces(message: str) -> list[Piece] | None:
    """A message with branches, as syntax and texts in turn; None where it has none, or none that can be told apart."""
    if not HEAD.search(message) or QUOTED.search(message):
        return None
    try:
        found = list(_pieces(message, numbered=False))
    except ValueError:
        return None
    texts = sum(not piece.kept for piece in found)
    return found if len(found) > texts and texts <= MOST else None


def _pieces(message: str, *, numbered: bool) -> Iterator[Piece]:
    """The pieces of a message; ValueError for one that is malformed, or whose arguments share a sentence."""
    found, at = list[Argument](), 0
    while head := HEAD.search(message, at):
        inside = argument(message, head.start())
        if inside is None:
            raise ValueError(message)
        found.append(inside)
        at = inside.end
    if not found:
        yield Piece(message, numbered=numbered)
        return
    edges = [0, *(edge for each in found for edge in (each.start, each.end)), len(message)]
    around = [message[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]
    worded = any(map(LETTER.search, around))
    plural = any(each.kind != "select" for each in found)
    before = after = ""
    if worded:
        before, after = around[0].lstrip(), around[-1].rstrip()
        around = [around[0][: len(around[0]) - len(before)], around[-1][len(after) :]]
        moved = before + after
        if len(found) > 1 or "\n" in moved or (plural and not numbered and NUMBER.search(moved)):
            raise ValueError(message)
    for number, each in enumerate(found):
        at = each.start
        yield Piece(around[number], kept=True)
        for branch in each.branches:
            yield Piece(message[at : branch.start], kept=True)
            inner = before + message[branch.start : branch.end] + after
            yield from _pieces(inner, numbered=numbered or each.kind != "select")
            at = branch.end
        yield Piece(message[at : each.end], kept=True)
    yield Piece(around[-1], kept=True)


def escaped(items: Sequence[Item], like: str) -> list[Item]:
    """Translated text as a message writes it: apostrophes twice where they would quote, or where the message `like`
    has them so; and what would be syntax quoted."""
    doubled = "''" in like
    plural = any(head[2] != "select" for head in HEAD.finditer(like))
    syntax = re.compile("[{}#]" if plural else "[{}]")
    found = list[Item]()
    for place, item in enumerate(items):
        if isinstance(item, str):
            behind = items[place + 1] if place + 1 < len(items) else "}"
            sign = (behind.raw if isinstance(behind, Held) else behind)[:1]
            before = "'" if doubled else "'(?=[{}#|])" + "|'$" * (sign in tuple("{}#|"))
            item = syntax.sub(r"'\g<0>'", re.sub(before, "''", item))
        found.append(item)
    return found


def skeleton(raw: str) -> str:
    """What a translation has in common with its source: `{n, plural, …}`."""
    head = HEAD.match(raw)
    return f"{{{head[1]}, {head[2]}, …}}" if head is not None else raw


def closing(text: str, at: int, start: int) -> int:
    """The brace that closes the message which begins here; -1 where none is near `start`. Quoted ones do not count."""
    depth, limit = 1, start + LONGEST
    while at < limit and (sign := SIGNS.search(text, at, limit)) is not None:
        at = sign.end()
        if sign[0] == "'":  # a quotation: to the next single apostrophe
            quoted = re.compile(r"(?:[^']|'')*'").match(text, at)
            at = quoted.end() if quoted is not None else len(text)
        elif sign[0] != "''":
            depth += 1 if sign[0] == "{" else -1
            if not depth:
                return sign.start()
    return -1
