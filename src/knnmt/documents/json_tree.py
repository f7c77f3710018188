"""JSON with positions: strings, objects and arrays know where they stand in the text."""

import json
import re
from dataclasses import dataclass, field
from json.decoder import scanstring  # type: ignore[attr-defined]

from knnmt.documents.content import Content

MAX_DEPTH = 200
_TOKEN = re.compile(r'[\s,:]*([\[\]{}"]|[^\s,:\[\]{}"]+)')


@dataclass(slots=True)
class Node:
    """A value at `text[start:end]`; `key` is its name in an object, `text` its value if it is a string."""

    start: int
    key: str = ""
    end: int = 0
    text: str | None = None
    members: list["Node"] = field(default_factory=list)
    kind: str = ""  # `{`, `[`, `"`, or "" for numbers and constants

    def get(self, key: str) -> "Node | None":
        """The member of this name."""
        return next((member for member in self.members if member.key == key), None)


def parse(content: Content) -> Node:
    """The tree of a file; what is no JSON is refused."""
    text = content.text
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise content.error(error.pos, f"invalid JSON ({error.msg.removesuffix(' at')})") from None
    except RecursionError:
        raise content.error(0, "values are nested too deeply") from None
    except ValueError as error:  # a number of more digits than Python takes
        raise content.error(0, f"invalid JSON ({error})") from None
    root = Node(0, kind="[")
    stack, key, at = [root], None, 0
    while found := _TOKEN.match(text, at):
        mark, start, at = found[1], found.start(1), found.end()
        if mark in "]}":
            stack.pop().end = at
            continue
        node = Node(start, key or "", kind=mark if mark in '{["' else "")
        if mark == '"':
            node.text, at = scanstring(text, at, True)
            if stack[-1].kind == "{" and key is None:
                key = node.text
                continue
        node.end, key = at, None
        stack[-1].members.append(node)
        if mark in "{[":
            stack.append(node)
            if len(stack) > MAX_DEPTH:
                raise content.error(start, f"values are nested more than {MAX_DEPTH} deep")
    return root.members[0]


def writer(content: Content) -> "Writer":
    """How this file writes strings."""
    text = content.text
    return Writer(ascii="\\u" in text and text.isascii(), slashes="\\/" in text)


@dataclass(frozen=True)
class Writer:
    """Writes strings as a file does: other letters than ASCII, and slashes, with escapes or without."""

    ascii: bool
    slashes: bool

    def __call__(self, text: str) -> str:
        """A string with its quotes."""
        written = json.dumps(text, ensure_ascii=self.ascii)
        return written.replace("/", "\\/") if self.slashes else written


def indentation(content: Content, node: Node) -> str:
    """The line end and white space before a value or its key, empty if it does not start its line."""
    start = content.text.rfind("\n", 0, node.start) + 1
    space = content.text[start : node.start]
    lead = space[: len(space) - len(space.lstrip())]
    return content.newline + lead if start and space.lstrip()[:1] == '"' else ""
