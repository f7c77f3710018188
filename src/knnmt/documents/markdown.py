"""Markdown: paragraphs, headings, items and cells are units; code, addresses, HTML blocks and front matter stay.

markdown-it finds the blocks. Inside them emphasis, links, code spans and tags are codes.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from markdown_it import MarkdownIt

from knnmt.documents.content import Content
from knnmt.documents.unit import Entry, Left, Unit, Value
from knnmt.text.inline import Code, Inline

NARROWEST = 40  # columns to which a paragraph of several lines is wrapped, if its own lines are shorter
MOST_MARKS = 2000  # of emphasis in a block: more are no text that somebody wrote
LONGEST = 200_000  # characters of a block that is translated: longer ones are data
_FRONT = re.compile(r"(?:---|\+\+\+)[ \t]*\r?\n.*?^(?:---|\+\+\+|\.\.\.)[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_LINE_END = re.compile(r"\r\n?|\n")
_LETTER = re.compile(r"[^\W\d_]")
_TOKEN = re.compile(
    r"(?P<code>\A\[[ xX]\](?=\s)|(?P<ticks>`+)(?!`).*?(?<!`)(?P=ticks)(?!`)|<[A-Za-z][A-Za-z0-9+.-]*:[^<>\s]*>"
    r"|<!--.{0,2000}?-->|\[\^[^\]]{1,100}\])"
    r"|(?P<break>(?: {2,}|\\)\n)|(?P<escape>\\[!-/:-@\[-`{-~])"
    r"|(?P<tag></?[A-Za-z][^<>]*>)|(?P<open>!?\[)"
    r"|(?P<close>\](?:\((?:[^()\\]|\\.|\([^()]{0,500}\)){0,2000}+\)|\[[^\]]{0,500}\])?)"
    r"|(?P<mark>\*+|_+|~~)|(?P<space>\s*\n\s*)|(?P<text>[^\\`<!\[\]*_~\n ]+| +|.)",
    re.DOTALL,
)
_TAG_NAME = re.compile(r"<(/?)([A-Za-z][\w:.-]*)")
# what would begin another block at the start of a line
_MARKER = re.compile(r"(?:[-+*]|#{1,6}|\d+[.)])(?= |$)|>|`{3}|~{3}|[=-]+$|\|")


class _Piece(NamedTuple):
    raw: str
    text: str | None = None  # None: a code
    opens: str = ""
    closes: str = ""


def read_markdown(content: Content) -> Iterator[Entry]:
    """The texts of all blocks."""
    front = _FRONT.match(content.text)
    offset = front.end() if front is not None else 0
    body = content.text[offset:]
    ends = [found.end() for found in _LINE_END.finditer(body)]
    starts = [offset + at for at in (0, *ends)]
    spans = list(zip(starts, [*starts[1:], len(content.text)], strict=True))
    found: dict[str, Any] = {}
    blocks = MarkdownIt("commonmark", {"maxNesting": 100}).enable("table").disable("inline")
    tokens = blocks.parse(body, found)
    references = {str(name) for name in found.get("references", ())}
    cell, row = False, -1  # where the next cell of a row is looked for
    for token in tokens:
        cell = token.type in ("th_open", "td_open") or (cell and token.type == "inline")
        if token.type == "tr_open":
            row = -1
        if token.type != "inline" or token.map is None or not _LETTER.search(token.content):
            continue
        text = token.content.replace("|", "\\|") if cell else token.content
        lines = _located(content, spans[token.map[0] : token.map[1]], text.split("\n"), row if cell else -1)
        if lines is None:
            continue  # tabs that markdown-it has expanded, and the like: such a block stays as it is
        row = lines[-1][1]
        if len(token.content) > LONGEST:
            yield Left(content.line(lines[0][0]), f"block of more than {LONGEST:,} characters")
            continue
        entry = _unit(content, lines, references, cell=cell)
        if entry is not None:
            yield entry


def _located(
    content: Content, spans: Sequence[tuple[int, int]], lines: list[str], after: int
) -> list[tuple[int, int]] | None:
    """Where in the file the lines of a block stand, without what marks the block."""
    if len(spans) < len(lines):
        return None
    found = []
    for (start, end), line in zip(spans, lines, strict=False):
        text, line = content.text[start:end].rstrip("\r\n"), line.strip()
        behind = text.rstrip()
        at = len(behind) - len(line) if behind.endswith(line) and after < 0 else text.find(line, max(0, after - start))
        if at < 0 or not line:
            return None
        found.append((start + at, start + at + len(line)))
    return found


def _unit(content: Content, lines: list[tuple[int, int]], references: set[str], *, cell: bool) -> Entry | None:
    start, end = lines[0][0], lines[-1][1]
    before = content.text[content.text.rfind("\n", 0, lines[-1][0]) + 1 : lines[-1][0]] if len(lines) > 1 else ""
    newline = content.newline + before
    body = "\n".join(content.text[a:b] + "  " * content.text.startswith("  ", b) for a, b in lines)
    pieces = list(_pieces(body.rstrip(), references, newline))
    text, codes, opened = "", list[Code](), list[tuple[str, int]]()
    for piece in pieces:
        if piece.text is not None:
            text += piece.text
            continue
        pair = None
        if piece.closes and (match := next((each for each in reversed(opened) if each[0] == piece.closes), None)):
            del opened[opened.index(match) :]
            pair = match[1]
            codes[pair] = codes[pair]._replace(pair=len(codes))
        elif piece.opens:
            opened.append((piece.opens, len(codes)))
        codes.append(Code(len(text), piece.raw, pair))
    if not _LETTER.search(text):
        return None
    escaped = {
        piece.raw[1] for piece in pieces if piece.text is not None and len(piece.raw) == 2 and piece.raw[0] == "\\"
    }
    special = escaped | {mark for mark in "\\`*_[]<~" if mark not in text}  # unless the source has it, harmless
    width = max(NARROWEST, *(b - a for a, b in lines)) if len(lines) > 1 else 0

    def escape(some: str) -> str:
        some = "".join("\\" + letter if letter in special else letter for letter in some.replace("\n", " "))
        return some.replace("|", "\\|") if cell and "|" not in escaped else some

    def write(target: Inline) -> str:
        new = target.written(escape)
        if not cell and (marker := _MARKER.match(new)) and not (target.codes and target.codes[0].at == 0):
            at = marker.end() - 1 if new[0].isdigit() else 0
            new = f"{new[:at]}\\{new[at:]}"
        return newline.join(row for line in new.split(newline) for row in _wrapped(line, width)) if width else new

    return Value(Unit(Inline(text, tuple(codes)), line=content.line(start)), start, end, write)


def _pieces(body: str, references: set[str], newline: str) -> Iterator[_Piece]:
    """The texts and codes of a block; marks of emphasis count where they open and close something."""
    tokens = list(_TOKEN.finditer(body))
    marks = _emphasis(body, [token for token in tokens if token["mark"]])
    brackets: list[int] = []
    closing: dict[int, int] = {}
    for token in tokens:
        if token["open"]:
            brackets.append(token.start())
        elif token["close"] and brackets:
            opening = brackets.pop()
            label = body[opening:].removeprefix("!")[1 : token.start() - opening - body.startswith("!", opening)]
            if len(token[0]) > 1 or " ".join(label.split()).upper() in references:
                closing |= {opening: token.start(), token.start(): opening}
    for token in tokens:
        raw, at = token[0], token.start()
        if token["escape"]:
            yield _Piece(raw, raw[1])
        elif token["break"]:
            yield _Piece("", " ")  # it separates words
            yield _Piece(("\\" if raw[0] == "\\" else " ") + newline)
        elif token["space"]:
            yield _Piece(raw, " ")
        elif token["code"]:
            yield _Piece(raw.replace("\n", " "))
        elif token["tag"]:
            name = _TAG_NAME.match(raw)
            assert name is not None
            yield _Piece(raw.replace("\n", " "), None, "" if name[1] else name[2], name[2] if name[1] else "")
        elif token["open"] and at in closing:
            yield _Piece(raw, None, f"link {at}")
        elif token["close"] and at in closing:
            # the label of a reference is its key: the translation needs it beside itself
            opening = closing[at]
            label = body[opening:at].removeprefix("!").removeprefix("[").replace("\n", " ")
            target = f"][{label}]" if raw in ("]", "][]") else raw.replace("\n", " ")
            yield _Piece(target, None, "", f"link {opening}")
        elif token["mark"] and at in marks:
            opening = min(at, marks[at])
            yield _Piece(raw, None, f"mark {opening}" * (at == opening), f"mark {opening}" * (at != opening))
        else:
            yield _Piece(raw, raw)


def _emphasis(body: str, marks: list[re.Match[str]]) -> dict[int, int]:
    """Which marks are the two of a pair: the same, the first before a word, the second behind one."""
    found: dict[int, int] = {}
    opened: list[re.Match[str]] = []
    for mark in marks if len(marks) <= MOST_MARKS else ():
        before, after = body[mark.start() - 1 : mark.start()], body[mark.end() : mark.end() + 1]
        inside = before.isalnum() and after.isalnum() and mark[0][0] == "_"  # snake_case
        partner = next((each for each in reversed(opened) if each[0] == mark[0]), None)
        if partner is not None and before.strip() and not inside:
            found |= {partner.start(): mark.start(), mark.start(): partner.start()}
            del opened[opened.index(partner) :]
        elif after.strip() and not inside:
            opened.append(mark)
    return found


def _wrapped(text: str, width: int) -> list[str]:
    """A paragraph in lines of at most so many columns; none starts with what would begin another block."""
    rows = [""]
    for word in text.split(" "):
        row = rows[-1]
        if row and len(row) + 1 + len(word) > width and not _MARKER.match(word):
            rows.append(word)
        else:
            rows[-1] = f"{row} {word}" if row else word
    return rows
