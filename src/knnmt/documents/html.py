"""HTML and XHTML: the text of each block is a unit, its inline tags are codes; everything else stays to the byte.

Attributes that people read are units too. Scripts, styles, `code`, `pre`, comments, and elements with `translate="no"`
or the class `notranslate` are kept as they are. Any text can be read: what is no tag is text.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from knnmt.documents.content import Content
from knnmt.documents.patches import Patch, sliced
from knnmt.documents.unit import Entry, Heading, Unit, Value
from knnmt.languages import closeness
from knnmt.text.html_attributes import Attribute, attributes_of, not_translated, read_by_people
from knnmt.text.html_tree import BLOCK, KEPT, VOID
from knnmt.text.inline import Code, Inline

_TOKEN = re.compile(
    r"(?P<hidden><!--.*?(?:-->|\Z)|<[?%].*?(?:[?%]>|\Z)|<![^>]*+(?:>|\Z))"
    r"""|<(?P<end>/?)(?P<name>[A-Za-z][^\s/<>]*+)(?P<rest>(?:[^<>"']++|"[^"]*"|'[^']*')*+)>|(?P<text>[^<]++|<)""",
    re.DOTALL,
)
_LANGUAGE = re.compile(r"""\s(?:xml:)?lang\s*=\s*["']?([A-Za-z][\w-]*)""", re.IGNORECASE)
_LETTER = re.compile(r"[^\W\d_]")
_SPACE = re.compile(r"[ \t\r\n\f]+")


class _Piece(NamedTuple):
    """A piece of a block: text, or a code; `opens`, `closes` and `alone` name the element of a tag."""

    start: int
    end: int
    text: str | None = None
    opens: str = ""
    closes: str = ""
    alone: str = ""  # a void element, or one that is kept whole

    @property
    def edge(self) -> bool:
        """Whether it is no part of a text that it stands before or behind, unless it is one of a pair."""
        return not self.text.strip() if self.text is not None else self.alone in ("", "br", "img", "wbr", "input")


def read_html(content: Content) -> Iterator[Entry]:
    """The texts of all blocks, and the language that the page names."""
    attributes: list[Attribute] = []
    runs = list(_runs(content.text, attributes))
    found = list(_entries(content, runs, attributes))
    yield from found
    root = re.search(r"<html(?=\s)[^>]*>", content.text, re.IGNORECASE)
    names = _LANGUAGE.finditer(content.text, *root.span()) if root is not None else iter(())
    patches = [Patch(*name.span(1), content.target) for name in names if closeness(content.source or name[1], name[1])]
    if patches and content.target:
        yield Heading(found, lambda: patches)


def _entries(content: Content, runs: list[list[_Piece]], attributes: list[Attribute]) -> Iterator[Entry]:
    """The texts with the attributes inside them, and the attributes between them, in the order of the file."""
    at = 0

    def until(place: int) -> list[Value]:
        nonlocal at
        start = at
        at = next(
            (number for number in range(at, len(attributes)) if attributes[number].start >= place), len(attributes)
        )
        return [_attribute(content, each) for each in attributes[start:at]]

    for run in runs:
        entry = _unit(content, run)
        if entry is not None:
            yield from until(entry.start)
            entry.take(until(entry.end))
            yield entry
    yield from until(len(content.text))


def _attribute(content: Content, found: Attribute) -> Value:
    unit = Unit(Inline.plain(found.value), line=content.line(found.start), key=found.name)
    return Value(unit, found.start, found.end, lambda target: found.written(target.text))


def _runs(text: str, attributes: list[Attribute]) -> Iterator[list[_Piece]]:
    """What stands between the tags of blocks; attributes with text are added to the list."""
    run: list[_Piece] = []
    at = 0
    while found := _TOKEN.match(text, at):
        start, at = found.span()
        name, closing = (found["name"] or "").lower(), bool(found["end"])
        if found["text"] is not None:
            run.append(_Piece(start, at, found["text"]))
            continue
        if not name:
            run.append(_Piece(start, at))
            continue
        rest = found["rest"]
        own, _ = attributes_of(rest + ">", 0) or ([], 0)
        kept = not closing and name not in VOID and (name in KEPT or not_translated(own))
        if not closing:
            read = read_by_people(name, own)
            offset = found.start("rest")
            attributes += (each._replace(start=offset + each.start, end=offset + each.end) for each in read)
        if kept and not rest.endswith("/"):
            at = _end_of(text, at, name)
        if name in BLOCK:
            yield run
            run = []
            continue
        alone = kept or name in VOID or rest.endswith("/")
        opens, closes = "" if closing or alone else name, name if closing else ""
        run.append(_Piece(start, at, None, opens, closes, name if alone else ""))
        if name == "br" and _ends_line(run[:-1]):
            yield run
            run = []
    yield run


def _ends_line(run: list[_Piece]) -> bool:
    """Whether a line break ends a text, by what stands before it: the end of a sentence, or another break."""
    seen = (piece for piece in reversed(run) if not piece.closes and (piece.text is None or piece.text.strip()))
    last = next(seen, None)
    if last is None or last.text is None:
        return last is None or last.alone == "br"
    return last.text.rstrip().endswith((".", "!", "?", "…", ":", ";"))


def _end_of(text: str, at: int, name: str) -> int:
    """Where an element ends whose start tag ends here."""
    depth = 1
    for found in re.compile(rf"<(/?){re.escape(name)}(?=[\s/>])[^>]*>", re.IGNORECASE).finditer(text, at):
        depth += -1 if found[1] else 1
        if not depth or (found[1] and name in ("script", "style", "textarea")):
            return found.end()
    return len(text)


class _Text(Entry):
    """A text with codes, at `text[start:end]`; attributes of its tags are units of their own."""

    def __init__(self, content: Content, text: Inline, start: int, end: int, places: list[tuple[int, int]]) -> None:
        self.content, self.start, self.end, self.places = content, start, end, places
        self.text = Unit(text, line=content.line(start))
        self.inside: list[Value] = []
        self.units = [self.text]

    def take(self, attributes: list[Value]) -> None:
        """Attributes of its tags become units beside the text."""
        self.inside = attributes
        self.units = [self.text, *(unit for each in attributes for unit in each.units)]

    def patches(self) -> Iterator[Patch]:
        """The translation with its tags, whose attributes may be translated too."""
        inside = [patch for each in self.inside if each.changed for patch in each.patches()]
        target = self.text.target
        if not self.text.changed or target is None:
            yield from inside
            return
        raws = {
            self.content.text[start:end]: sliced(self.content.text, start, end, inside) for start, end in self.places
        }
        codes = tuple(code._replace(raw=raws.get(code.raw, code.raw)) for code in target.codes)
        like = self.content.text[self.start : self.end]
        yield Patch(self.start, self.end, Inline(target.text, codes).written(lambda piece: escaped(piece, like)))


def _unit(content: Content, run: list[_Piece]) -> "_Text | None":
    """The unit of a run, without the space and the lone tags around its text."""
    if not any(piece.text and _LETTER.search(html.unescape(piece.text)) for piece in run):
        return None
    partners = _partners(run)
    first, last = 0, len(run)
    while run[first].edge and first not in partners:
        first += 1
    while run[last - 1].edge and last - 1 not in partners:
        last -= 1
    run = run[first:last]
    start, end = run[0].start, run[-1].end
    if run[0].text is not None:
        start += len(run[0].text) - len(run[0].text.lstrip())
    if run[-1].text is not None:
        end -= len(run[-1].text) - len(run[-1].text.rstrip())
    text, codes, numbers, places = "", list[Code](), dict[int, int](), list[tuple[int, int]]()
    for place, piece in enumerate(run, start=first):
        if piece.text is None:
            numbers[place] = len(codes)
            text += " " * (piece.alone == "br" and text[-1:].strip() != "")  # it separates words
            codes.append(Code(len(text), content.text[piece.start : piece.end], None))
            places.append((piece.start, piece.end))
        else:
            new = _SPACE.sub(" ", html.unescape(content.text[max(piece.start, start) : min(piece.end, end)]))
            text += new.lstrip(" ") if text.endswith(" ") and not (codes and codes[-1].at == len(text)) else new
    for place, number in numbers.items():
        partner = numbers.get(partners.get(place, -1))
        codes[number] = codes[number]._replace(pair=partner)
    return _Text(content, Inline(text, tuple(codes)), start, end, places)


def _partners(run: list[_Piece]) -> dict[int, int]:
    """The places of tags that open and close an element in the same run."""
    opened: list[int] = []
    names: Counter[str] = Counter()
    found: dict[int, int] = {}
    for place, piece in enumerate(run):
        if piece.opens:
            opened.append(place)
            names[piece.opens] += 1
        elif names[piece.closes]:
            for depth in range(len(opened) - 1, -1, -1):
                if run[opened[depth]].opens == piece.closes:
                    found |= {opened[depth]: place, place: opened[depth]}
                    names.subtract(run[each].opens for each in opened[depth:])
                    del opened[depth:]
                    break
    return found


def escaped(text: str, like: str = "") -> str:
    """Text as HTML; hard spaces and quotes as the source `like` writes them."""
    text = html.escape(text, quote=False)
    if "&nbsp;" in like:
        text = text.replace("\u00a0", "&nbsp;")
    return text.replace('"', "&quot;") if "&quot;" in like else text
