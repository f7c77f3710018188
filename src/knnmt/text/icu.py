"""ICU messages: the branches of `{n, plural, one {# file} other {# files}}`, by their places in the text."""

import re
from typing import NamedTuple

HEAD = re.compile(r"\{\s*([\w.-]+)\s*,\s*(plural|selectordinal|select)\s*,\s*(?:offset:\d+\s*)?")
SELECTOR = re.compile(r"\s*(=\d+|[\w-]+)\s*\{")
SIGNS = re.compile(r"''|'(?=[{}#|])|[{}]")
LONGEST = 4000  # characters of an argument


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
        end = _closing(text, selector.end(), start + LONGEST)
        if end < 0:
            return None
        branches.append(Branch(selector[1], selector.end(), end))
        at = end + 1
    tail = re.compile(r"\s*\}").match(text, at)
    named = {branch.selector for branch in branches}
    if tail is None or "other" not in named or len(named) < len(branches):
        return None
    return Argument(head[1], head[2], start, tail.end(), tuple(branches))


def skeleton(raw: str) -> str:
    """What a translation has in common with its source: `{n, plural, …}`."""
    head = HEAD.match(raw)
    return f"{{{head[1]}, {head[2]}, …}}" if head is not None else raw


def _closing(text: str, at: int, limit: int) -> int:
    """The brace that closes the message which begins here; -1 where there is none near. Quoted braces do not count."""
    depth = 1
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
