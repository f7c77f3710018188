"""Paragraphs of office documents: their runs as text with inline codes, and back.

A reader turns a paragraph into tokens. Here they become units: tabs separate texts, what stands around a text stays
there, runs of equal formatting are one, and formatting within a text is a pair of codes. Codes have short names
(`<g1>`, `</g1>`, `<x2/>`), so that equal texts are equal however they are formatted.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from knnmt.documents.content import Content
from knnmt.documents.patches import Patch, sliced
from knnmt.documents.unit import Entry, Unit
from knnmt.text.inline import Code, Inline
from knnmt.text.words import is_text

MOST_PAIRS = 50  # bookmarks and the like that are paired in a paragraph: more would take time


class Xml(NamedTuple):
    """A slice of the file, and what is written around it."""

    start: int
    end: int
    before: str = ""
    after: str = ""


class Token(NamedTuple):
    """A piece of a paragraph.

    `kind` is `text`, `tab` (it separates texts), `code`, `open` or `close` (of a container); `start` and `end` are
    codes that become `open` and `close` where they have a partner of the same key, and nest.
    """

    kind: str
    xml: tuple[Xml, ...] = ()  # as it is in the file
    text: str = ""
    format: str = ""  # of a text: the properties of its run; of an opened container: those of most of its text
    key: Hashable = None


class Dialect(ABC):
    """How a format writes text."""

    @abstractmethod
    def text(self, text: str, format: str, last: str) -> str:
        """A text in a format; `last` is the character before it, "" at the start of the paragraph."""


class Paragraph(Entry):
    """A paragraph: `text[start:end]` is its content, of which tokens are made; others may be nested in it."""

    def __init__(
        self,
        content: Content,
        member: str,
        span: tuple[int, int],
        tokens: Sequence[Token],
        dialect: Dialect,
        *,
        number: int,
        nested: Sequence["Paragraph"] = (),
    ) -> None:
        self.content, self.member, self.span, self.dialect, self.nested = content, member, span, dialect, nested
        self.pieces = list(_divided(_collapsed(_nested(tokens))))
        self.own = [piece for piece in self.pieces if isinstance(piece, Segment)]
        for segment in self.own:
            segment.unit = Unit(segment.source, line=number, key=member)
        self.units = [*(segment.unit for segment in self.own), *(unit for each in nested for unit in each.units)]

    def patches(self) -> Iterator[Patch]:
        """The content with its translations, or only those of nested paragraphs."""
        inside = [patch for each in self.nested if each.changed for patch in each.patches()]
        if not any(segment.unit.changed for segment in self.own):
            yield from inside
            return
        writer = _Writer(self.content, self.dialect, inside)
        for piece in self.pieces:
            if isinstance(piece, Token):
                writer.token(piece)
            elif piece.unit.target is not None:
                piece.write(piece.unit.target, writer)
            else:
                for token in piece.tokens:
                    writer.token(token)
        yield Patch(*self.span, "".join(writer.out))


# ------------------------------------------------------------------------------------------------------------ tokens


def _nested(tokens: Sequence[Token]) -> list[Token]:
    """The tokens with starts and ends paired where that keeps everything nested, else as codes."""
    found = list(tokens)
    starts: dict[Hashable, int] = {}
    pairs = 0
    for place, token in enumerate(tokens):
        if token.kind == "start":
            starts[token.key] = place
        elif token.kind == "end" and (start := starts.pop(token.key, None)) is not None:
            if pairs < MOST_PAIRS and balanced(found[start + 1 : place]):
                found[start], found[place] = found[start]._replace(kind="open"), token._replace(kind="close")
            pairs += 1
    return [token._replace(kind="code") if token.kind in ("start", "end") else token for token in found]


def balanced(tokens: Iterable[Token]) -> bool:
    """Whether each container that begins among some tokens ends there, and the other way round."""
    depth = 0
    for token in tokens:
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if depth < 0:
            return False
    return not depth


def _collapsed(tokens: Iterable[Token]) -> list[Token]:
    """The tokens with containers that hold no text as codes."""
    found: list[Token] = []
    opened: list[int] = []
    for token in tokens:
        if token.kind == "open":
            opened.append(len(found))
        elif token.kind == "close":
            start = opened.pop()
            if not any(each.kind in ("text", "tab") for each in found[start:]):
                token = Token("code", tuple(xml for each in (*found[start:], token) for xml in each.xml))
                del found[start:]
        found.append(token)
    return found


def _divided(tokens: list[Token]) -> Iterator["Token | Segment"]:
    """The texts between tabs, and what stands around them."""
    first, last = _core(tokens)
    yield from tokens[:first]
    core, tail = tokens[first:last], tokens[last:]
    tabs = [place for place, depth in enumerate(_depths(core)) if core[place].kind == "tab" and not depth]
    if tabs:
        for start, end in zip([0, *(tab + 1 for tab in tabs)], [*tabs, len(core)], strict=True):
            yield from _divided(core[start:end])
            yield from core[end : end + 1]
    elif is_text("".join(token.text for token in core)):
        yield Segment(core)
    else:
        yield from core
    yield from tail


def _core(tokens: Sequence[Token]) -> tuple[int, int]:
    """Where the text begins and ends, without codes and space around it, and containers that hold all of it."""
    partners = _partners(tokens)
    first, last = 0, len(tokens)
    while first < last:
        if _aside(tokens[first]):
            first += 1
        elif _aside(tokens[last - 1]):
            last -= 1
        elif partners.get(first) == last - 1:
            first, last = first + 1, last - 1
        else:
            break
    return first, last


def _aside(token: Token) -> bool:
    return token.kind in ("code", "tab") or (token.kind == "text" and not token.text.strip())


def _partners(tokens: Sequence[Token]) -> dict[int, int]:
    """The place of the end of each container that begins here."""
    opened: list[int] = []
    found: dict[int, int] = {}
    for place, token in enumerate(tokens):
        if token.kind == "open":
            opened.append(place)
        elif token.kind == "close" and opened:
            found[opened.pop()] = place
    return found


def _depths(tokens: Iterable[Token]) -> Iterator[int]:
    depth = 0
    for token in tokens:
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        yield depth


# ---------------------------------------------------------------------------------------------------------- segments


class Segment:
    """A text of a paragraph: its tokens, and what the codes of its unit stand for."""

    unit: Unit

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.format, flat = _scope(tokens)
        text, codes, opened = "", list[Code](), list[int]()
        self.codes: dict[str, Token] = {}
        for token in _merged(flat):
            if token.kind == "text":
                text += token.text
                continue
            number, pair = len(codes), None
            if token.kind == "open":
                name = f"<g{number + 1}>"
                opened.append(number)
            elif token.kind == "close":
                pair = opened.pop()
                name = f"</g{pair + 1}>"
                codes[pair] = codes[pair]._replace(pair=number)
            else:
                name = f"<x{number + 1}/>"
                text += " " * (token.kind == "tab" and text[-1:].strip() != "")  # it separates words
            codes.append(Code(len(text), name, pair))
            self.codes[name] = token
        self.source = Inline(text, tuple(codes))

    def write(self, target: Inline, writer: "_Writer") -> None:
        """Write a translation; codes that it lost come last."""
        formats, at, lost = [self.format], 0, dict(self.codes)
        for code in (*target.codes, *(Code(len(target.text), name, None) for name in self.codes)):
            writer.text(target.text[at : code.at], formats[-1])
            at = code.at
            token = lost.pop(code.raw, None)
            if token is None:
                continue
            if token.kind == "open":
                formats.append(token.format)
            elif token.kind == "close" and len(formats) > 1:
                formats.pop()
            writer.token(token)
        writer.text(target.text[at:], formats[-1])


def _scope(tokens: Sequence[Token]) -> tuple[str, list[Token]]:
    """The format of most of the text here, and the tokens with text of other formats in containers of their own."""
    partners = _partners(tokens)
    counts: Counter[str] = Counter()
    place = 0
    while place < len(tokens):
        if tokens[place].kind == "text":
            counts[tokens[place].format] += len(tokens[place].text.strip())
        place = partners.get(place, place) + 1
    base = counts.most_common(1)[0][0] if counts else ""
    found: list[Token] = []
    current, behind = base, 0  # the format that is open, and the place behind its last text
    place = 0
    while place < len(tokens):
        token = tokens[place]
        inside = place in partners
        formatted = token.kind == "text" and not _is_space(token.text)
        new = token.format if formatted else base if inside else current
        if new != current:
            if current != base:
                found.insert(behind, Token("close"))
            if new != base:
                found.append(Token("open", format=new))
            current = new
        if inside:
            inner, flat = _scope(tokens[place + 1 : partners[place]])
            found += (token._replace(format=inner), *flat, tokens[partners[place]])
        else:
            found.append(token)
        behind = len(found) if formatted else behind
        place = partners.get(place, place) + 1
    if current != base:
        found.insert(behind, Token("close"))
    return base, found


def _is_space(text: str) -> bool:
    """Whether a text is space between words, of which nobody sees the format; a long one may be underlined."""
    return not text.strip() and len(text) < 3


def _merged(tokens: Sequence[Token]) -> list[Token]:
    """Codes that stand together as one, also two pairs around the same text: the fewer, the better for a model."""
    found, partners = list(tokens), _partners(tokens)
    gone: set[int] = set()
    for outer in sorted(partners, reverse=True):
        inner, end = outer + 1, partners[outer]
        if partners.get(inner) == end - 1:
            found[outer] = found[inner]._replace(xml=found[outer].xml + found[inner].xml)
            found[end] = found[end]._replace(xml=found[end - 1].xml + found[end].xml)
            gone |= {inner, end - 1}
    left = [token for place, token in enumerate(found) if place not in gone]
    return [
        token
        for alone, some in groupby(left, key=lambda token: token.kind == "code")
        for token in ([Token("code", tuple(xml for each in some for xml in each.xml))] if alone else some)
    ]


class _Writer:
    """Writes tokens and texts as XML; slices of the file come with the edits inside them."""

    def __init__(self, content: Content, dialect: Dialect, inside: Sequence[Patch]) -> None:
        self.content, self.dialect, self.inside = content, dialect, inside
        self.out: list[str] = []
        self.last = ""

    def text(self, text: str, format: str) -> None:
        if text:
            self.out.append(self.dialect.text(text, format, self.last))
            self.last = text[-1]

    def token(self, token: Token) -> None:
        self.out += (
            xml.before + sliced(self.content.text, xml.start, xml.end, self.inside) + xml.after for xml in token.xml
        )
        if token.kind not in ("open", "close"):
            self.last = token.text[-1:] or "x"
