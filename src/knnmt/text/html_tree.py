"""A lenient HTML parser: any text becomes a tree, and is written back with the original tags, all of them closed.

Tags and comments are tokenized as browsers do (WHATWG HTML, 13.2.5). Optional end tags may be missing; an end tag
without a start tag is dropped. Entities are not expanded, nothing external is read, and time is linear in the length
of the text.
"""

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from knnmt.text.html_attributes import Attribute, attributes_of, not_translated, read_by_people

MAX_DEPTH = 100  # of nested elements; deeper ones become siblings
VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
RAW = frozenset("script style textarea title xmp iframe noembed noframes".split())  # content is not parsed
KEPT = frozenset("script style code pre textarea xmp iframe noembed noframes svg math".split())  # never translated
BLOCK = frozenset(
    "address article aside blockquote body caption center col colgroup dd details dialog dir div dl dt fieldset "
    "figcaption figure footer form frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link main menu "
    "meta nav noscript ol optgroup option p pre search section select summary table tbody td template tfoot th thead "
    "title tr ul xmp".split()
)
KNOWN_INLINE = frozenset(
    "a abbr acronym audio b bdi bdo big button canvas cite code data datalist del dfn em font i iframe ins kbd label "
    "map mark meter object output picture progress q ruby s samp script slot small span strike strong style sub sup "
    "textarea time tt u var video".split()
)
ROWS = frozenset("tr td th".split())
GROUPS = ROWS | frozenset("thead tbody tfoot".split())
# elements that a start tag closes implicitly
ENDS = {
    "li": frozenset(["li"]), "dt": frozenset(["dt", "dd"]), "dd": frozenset(["dt", "dd"]),
    "td": frozenset(["td", "th"]), "th": frozenset(["td", "th"]), "tr": ROWS,
    "thead": GROUPS, "tbody": GROUPS, "tfoot": GROUPS,
    "option": frozenset(["option"]), "optgroup": frozenset(["option", "optgroup"]),
}  # fmt: skip
PARAGRAPH = frozenset(["p"])
INSIDE_PARAGRAPHS = frozenset("col link meta noscript option optgroup select template title".split())

NAME = re.compile("</?([A-Za-z][^ \t\n\f\r/>]*)")
COMMENT = re.compile("<!--(?:-?>|.*?(?:--!?>|\\Z))", re.DOTALL)
SCRIPT = re.compile("<!--|-->|</?script(?=[ \t\n\f\r/>])", re.IGNORECASE)


@dataclass
class Text:
    """Text as it was written, with references such as `&amp;`."""

    raw: str


@dataclass
class Invisible:
    """A comment, doctype or processing instruction, kept as it is."""

    raw: str


@dataclass
class Element:
    """An element: `start` is its tag as it was written, `end` its end tag, empty for void elements."""

    name: str
    start: str
    end: str
    keep: bool = False  # do not translate the content
    block: bool = False  # it is, or contains, a block-level element
    children: list["Text | Invisible | Element"] = field(default_factory=list)
    read: tuple[Attribute, ...] = ()  # attributes that people read, by their places in `start`


Node = Text | Invisible | Element


def parse(text: str) -> Element:
    """Parse a text into a tree; its root has no tags of its own."""
    tree = _Tree()
    at = 0
    while at < len(text):
        at = _take(text, at, tree)
    return tree.root


def write(node: Node) -> Iterator[str]:
    """Write a node as HTML."""
    if isinstance(node, Text):
        yield node.raw.replace("<", "&lt;")  # a bare `<` could start a tag with what follows it now
    elif isinstance(node, Invisible):
        yield node.raw
    else:
        yield node.start
        for child in node.children:
            yield from [child.raw] if node.name in RAW and isinstance(child, Text) else write(child)
        yield node.end


# ------------------------------------------------------------------------------------------------------ tags


class _Tag(NamedTuple):
    raw: str
    spelt: str
    attributes: list[Attribute]  # by their places in `raw`
    slash: bool  # `<x/>`

    @property
    def name(self) -> str:
        return self.spelt.lower()

    @property
    def keep(self) -> bool:
        return self.name in KEPT or not_translated(self.attributes)


def _take(text: str, at: int, tree: "_Tree") -> int:
    """Add what starts at an offset to the tree, and return the offset behind it."""
    if text[at] != "<":
        end = text.find("<", at)
        end = end if end >= 0 else len(text)
        tree.put(Text(text[at:end]))
        return end
    if found := COMMENT.match(text, at):
        raw = found[0]
        whole = raw.endswith(("-->", "--!>", "<!--->", "<!-->"))
        tree.put(Invisible(raw if whole else raw + "-->"))
        return found.end()
    if NAME.match(text, at):
        tag = _tag(text, at)
        if tag is None:  # the text ends inside the tag: keep it as text
            tree.put(Text(text[at:]))
            return len(text)
        at += len(tag.raw)
        if tag.raw.startswith("</"):
            tree.close(tag.name)
        elif tag.name in RAW and not tag.slash:
            content, at = _raw(text, at, tag.name)
            tree.start(tag).children.append(Text(content))
        else:
            tree.start(tag)
        return at
    if text.startswith(("<!", "<?", "</"), at):
        end = text.find(">", at) + 1
        raw = text[at:end] if end else text[at:] + ">"
        if raw != "</>":
            tree.put(Invisible(raw))
        return end or len(text)
    tree.put(Text("<"))
    return at + 1


def _tag(text: str, at: int) -> _Tag | None:
    """The tag that starts at an offset; None if the text ends before the tag does."""
    name = NAME.match(text, at)
    assert name is not None
    found = attributes_of(text, name.end())
    if found is None:
        return None
    attributes, end = found
    slash = text[end] == "/"
    moved = [each._replace(start=each.start - at, end=each.end - at) for each in attributes]
    return _Tag(text[at : end + 1 + slash], name[1], moved, slash)


def _raw(text: str, at: int, name: str) -> tuple[str, int]:
    """The content of a raw text element, and the offset behind its end tag."""
    if name == "script":
        end, missing = _script_end(text, at)
    else:
        found = re.compile(f"</{name}(?=[ \t\n\f\r/>])", re.IGNORECASE).search(text, at)
        end, missing = (found.start() if found else len(text)), ""
    tag = _tag(text, end) if end < len(text) else None
    # an end tag that is cut off still counts
    return text[at:end] + missing, end + len(tag.raw) if tag is not None else len(text)


def _script_end(text: str, at: int) -> tuple[int, str]:
    """Where a script ends, and what must be appended if the text ends inside it.

    Inside `<!-- <script>` an end tag only ends the inner script (the "double escaped" states of the standard).
    """
    comment = inner = False
    for found in SCRIPT.finditer(text, at):
        what = found[0].lower()
        if what == "<!--":
            comment = True
        elif what == "-->":
            comment = inner = False
        elif what == "<script":
            inner = comment
        elif inner:
            inner = False
        else:
            return found.start(), ""
    return len(text), "-->" if comment else ""


# ------------------------------------------------------------------------------------------------------ tree


class _Tree:
    """The tree under construction, with the stack of open elements."""

    def __init__(self) -> None:
        self.root = Element("", "", "")
        self.open = [self.root]
        self.flat: Counter[str] = Counter()  # pending end tags of elements too deep to nest

    def put(self, node: Node) -> None:
        self.open[-1].children.append(node)

    def start(self, tag: _Tag) -> Element:
        name, raw, end = tag.name, tag.raw, f"</{tag.spelt}>"
        self._close_implicitly(name)
        empty = name in VOID or tag.slash
        if name in VOID or (tag.slash and name not in BLOCK | KNOWN_INLINE):
            end = ""
        elif tag.slash:  # browsers ignore that slash in known elements
            raw = raw.removesuffix("/>") + ">"
        element = Element(name, raw, end, tag.keep, name in BLOCK, read=tuple(read_by_people(name, tag.attributes)))
        self.put(element)
        if element.block:
            for outer in reversed(self.open):
                if outer.block:
                    break
                outer.block = True
        if not empty and name not in RAW:
            if len(self.open) > MAX_DEPTH:
                self.flat[name] += 1
            else:
                self.open.append(element)
        return element

    def close(self, name: str) -> None:
        if self.flat[name] > 0:
            self.flat[name] -= 1
            return
        for depth in range(len(self.open) - 1, 0, -1):
            if self.open[depth].name == name:
                del self.open[depth:]
                return
            if self.open[depth].name in BLOCK and name not in BLOCK:
                return

    def _close_implicitly(self, name: str) -> None:
        """Close the elements that a start tag of this name closes, as `<p>` closes an open paragraph."""
        ends = ENDS.get(name, frozenset())
        if name in BLOCK and name not in INSIDE_PARAGRAPHS:
            ends |= PARAGRAPH
        if not ends:
            return
        first = None
        for depth in range(len(self.open) - 1, 0, -1):
            if self.open[depth].name in ends:
                first = depth
            elif self.open[depth].name in BLOCK:
                break
        if first is not None:
            del self.open[first:]
