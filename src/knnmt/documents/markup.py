"""XML with positions: elements know where they stand in the text, so that edits leave everything else as it is.

Whether a file is well-formed is expat's to say; the scanner here only finds places. Files may come from untrusted
sources: nothing external is read, entities are never expanded, and declarations that could grow are refused.
"""

import html
import re
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from xml.parsers import expat

from knnmt.documents.content import Content
from knnmt.documents.patches import Patch
from knnmt.errors import DataError
from knnmt.text.inline import Code, Inline

MAX_DEPTH = 256  # of nested elements
_MARKUP = re.compile(
    r"<!--.*?-->|<!\[CDATA\[.*?\]\]>|<\?.*?\?>|<!DOCTYPE"
    r"""|<(?P<slash>/?)(?P<name>[^\s/>]++)(?P<rest>(?:[^>"'/]++|"[^"]*"|'[^']*'|/(?!>))*+)(?P<empty>/?)>""",
    re.DOTALL,
)
_DOCTYPE = re.compile(r"""<!DOCTYPE(?:[^\[>"']|"[^"]*"|'[^']*')*(?:\[(?P<subset>.*?)\]\s*)?>""", re.DOTALL)
# entities that are plain text, as Android's files declare them
_PLAIN_SUBSET = re.compile(r"""(?:\s|<!--.*?-->|<!ENTITY\s+[\w.:-]+\s+(?:"[^"&%<]*"|'[^'&%<]*')\s*>)*""", re.DOTALL)
_ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*(?:"([^"]*)"|'([^']*)')""")
_NAMESPACE = re.compile(r"""\sxmlns(?::([^\s=]+))?\s*=\s*["']([^"']*)["']""")
_INSIDE = re.compile(r"<!--.*?-->|<!\[CDATA\[(.*?)\]\]>|<\?.*?\?>|&([^;]+);", re.DOTALL)
_REFERENCES = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(slots=True)
class Element:
    """An element: `text[start:inner]` is its start tag, `text[outer:end]` its end tag (both the same, if empty)."""

    name: str  # without the prefix of the root's namespace, or with the usual prefix of its own
    start: int
    inner: int
    parent: "Element | None"
    attributes: str = ""  # as they are written
    attributes_at: int = 0
    outer: int = 0
    end: int = 0
    empty: bool = False
    children: list["Element"] = field(default_factory=list)

    def get(self, name: str, default: str = "") -> str:
        """The value of an attribute."""
        for found in _ATTRIBUTE.finditer(self.attributes):
            if found[1] == name:
                return html.unescape(found[2] if found[2] is not None else found[3])
        return default

    def find(self, name: str) -> "Element | None":
        """The first child of this name."""
        return next((child for child in self.children if child.name == name), None)

    def ancestors(self) -> Iterator["Element"]:
        """The element itself, its parent, and so on."""
        here: Element | None = self
        while here is not None:
            yield here
            here = here.parent

    def inherited(self, name: str) -> str:
        """The value of an attribute here, or on the nearest ancestor that has it."""
        return next((value for each in self.ancestors() if (value := each.get(name))), "")


def elements(
    content: Content, *names: str, root: Collection[str], prefixes: Mapping[str, str] | None = None
) -> Iterator[Element]:
    """The outermost elements of these names, each with all that is in it; ancestors know only their own attributes.

    A root element of another name than `root` is refused. Names are those without the root's prefix; or, with
    `prefixes` (by the prefix in the file), always with one.
    """
    check(content)
    text, stack, prefix, at = content.text, list[Element](), None, 0
    outermost: Element | None = None
    while found := _MARKUP.search(text, at):
        at = found.end()
        if found[0] == "<!DOCTYPE":
            doctype = _DOCTYPE.match(text, found.start())
            at = doctype.end() if doctype is not None else at
        if (spelt := found["name"]) is None:
            continue
        if prefix is None:
            prefix, _, name = spelt.rpartition(":")
            if name not in root:
                raise content.error(found.start(), f"the root element is <{name}>, not <{'> or <'.join(root)}>")
        if found["slash"]:
            element = stack.pop()
            element.outer, element.end = found.start(), at
        else:
            if prefixes is not None:
                name = renamed(spelt, prefixes)
            else:
                name = spelt.removeprefix(f"{prefix}:") if prefix else spelt
            element = Element(name, found.start(), at, stack[-1] if stack else None, found["rest"], found.start("rest"))
            if outermost is not None:
                stack[-1].children.append(element)
            elif name in names:
                outermost = element
            element.outer, element.end, element.empty = at, at, bool(found["empty"])
            if not element.empty:
                stack.append(element)
                continue
        if element is outermost:
            yield element
            outermost = None


def prefixes_of(content: Content, namespaces: Mapping[str, str]) -> dict[str, str]:
    """The usual prefix of a namespace by the prefix that the file has for it; `namespaces` has prefixes by name."""
    declared = ((found[1] or "", html.unescape(found[2])) for found in _NAMESPACE.finditer(content.text))
    return {spelt: namespaces[name] for spelt, name in declared if name in namespaces}


def renamed(name: str, prefixes: Mapping[str, str]) -> str:
    """A name with the usual prefix."""
    prefix, _, local = name.rpartition(":")
    return f"{prefixes.get(prefix, prefix)}:{local}"


def check(content: Content) -> None:
    """Refuse what is not well-formed or nested too deeply, and declarations of anything but plain text."""
    text = content.text
    if not text.strip():
        raise content.error(0, "the file is empty, which is no XML")
    for found in _MARKUP.finditer(text):
        if found[0] == "<!DOCTYPE":
            doctype = _DOCTYPE.match(text, found.start())
            if doctype is None or (doctype["subset"] and not _PLAIN_SUBSET.fullmatch(doctype["subset"])):
                raise content.error(
                    found.start(), "the DOCTYPE declares more than plain entities, which attacks use; remove it"
                )
        if found["name"] or found[0] == "<!DOCTYPE":
            break
    parser = expat.ParserCreate("utf-8", " ")
    parser.SetParamEntityParsing(expat.XML_PARAM_ENTITY_PARSING_NEVER)
    depth = 0

    def start(name: str, attributes: list[str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:  # before expat takes memory for all of them
            raise DataError(
                f"{content.name}:{parser.CurrentLineNumber}: elements are nested more than {MAX_DEPTH} deep"
            )

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1

    parser.StartElementHandler, parser.EndElementHandler, parser.ordered_attributes = start, end, True
    try:
        parser.Parse(text.encode(), True)
    except expat.ExpatError as error:
        reason = f"invalid XML ({expat.errors.messages[error.code]}); fix the file, or export it again"
        raise content.error(_position(text, error), reason) from None


def _position(text: str, error: expat.ExpatError) -> int:
    """Where in the text expat found an error."""
    at = 0
    for _ in range(error.lineno - 1):
        at = text.find("\n", at) + 1
    return at


def spelled(character: str) -> str:
    """A character that the encoding of a file does not have, as a reference."""
    return f"&#{ord(character)};"


# ------------------------------------------------------------------------------------------------------ inline text


def inline(
    content: Content,
    element: Element,
    *,
    whole: Callable[[Element], bool],
    partner: Callable[[Element], Hashable | None] = lambda _: None,
    clean: Callable[[str], str] = str,
) -> Inline:
    """The content of an element as text with codes.

    An element that is `whole` is one code with all that it contains; of any other, its tags are codes and its content
    is text. Elements of the same `partner` are a pair. `clean` undoes the format's own escapes in a piece of text.
    """
    return _Collector(content, whole, partner, clean).collected(element)


class _Collector:
    def __init__(
        self,
        content: Content,
        whole: Callable[[Element], bool],
        partner: Callable[[Element], Hashable | None],
        clean: Callable[[str], str],
    ) -> None:
        self.content, self.whole, self.partner, self.clean = content, whole, partner, clean
        self.texts: list[str] = []
        self.length = 0
        self.codes: list[Code] = []
        self.open: dict[Hashable, int] = {}

    def collected(self, element: Element) -> Inline:
        self._content(element)
        return Inline("".join(self.texts), tuple(self.codes))

    def _content(self, element: Element) -> None:
        text, at = self.content.text, element.inner
        for child in element.children:
            self._text(text[at : child.start])
            at = child.end
            if child.empty or self.whole(child):
                self._element(child)
            else:
                first = self._code(text[child.start : child.inner])
                self._content(child)
                self._pair(first, self._code(text[child.outer : child.end]))
        self._text(text[at : element.outer])

    def _element(self, child: Element) -> None:
        number = self._code(self.content.text[child.start : child.end])
        key = self.partner(child)
        if key is None:
            return
        if key in self.open:
            self._pair(self.open.pop(key), number)
        else:
            self.open[key] = number

    def _code(self, raw: str) -> int:
        self.codes.append(Code(self.length, raw, None))
        return len(self.codes) - 1

    def _pair(self, first: int, second: int) -> None:
        self.codes[first] = self.codes[first]._replace(pair=second)
        self.codes[second] = self.codes[second]._replace(pair=first)

    def _text(self, raw: str) -> None:
        at, pending = 0, ""
        for found in _INSIDE.finditer(raw):
            pending += raw[at : found.start()]
            at = found.end()
            if found[1] is not None:
                pending += found[1]  # CDATA
            elif found[2] is not None and (character := _referenced(found[2])) is not None:
                pending += character
            else:  # a comment, a processing instruction, an entity that the file declares
                self._add(pending)
                pending = ""
                self._code(found[0])
        self._add(pending + raw[at:])

    def _add(self, text: str) -> None:
        text = self.clean(text)
        self.texts.append(text)
        self.length += len(text)


def _referenced(name: str) -> str | None:
    if name.startswith("#"):
        number = int(name[2:], 16) if name[1:2] == "x" else int(name[1:])
        return chr(number)
    return _REFERENCES.get(name)


def unescaped(raw: str) -> str:
    """Text without references, comments and instructions, of a file that declares no entities."""

    def one(found: re.Match[str]) -> str:
        return found[1] or (_referenced(found[2]) if found[2] else None) or ""

    return _INSIDE.sub(one, raw) if "&" in raw or "<" in raw else raw


def escape(text: str, *, like: str = "") -> str:
    """Text as XML; quotes and `>` as references where the source `like` has such."""
    text = _ILLEGAL.sub("", text).replace("&", "&amp;").replace("<", "&lt;").replace("\r", "&#13;")
    text = text.replace(">", "&gt;") if "&gt;" in like else text.replace("]]>", "]]&gt;")
    if "&quot;" in like:
        text = text.replace('"', "&quot;")
    return text.replace("'", "&apos;") if "&apos;" in like else text


def written(target: Inline, content: Content, source: Element, prepare: Callable[[str], str] = str) -> str:
    """A translation as the content of an element, in the way in which the source is written.

    `prepare` adds the format's own escapes to a piece of text.
    """
    raw = content.text[source.inner : source.outer]
    if raw.lstrip().startswith("<![CDATA[") and not target.codes and "]]>" not in (text := prepare(target.text)):
        return f"<![CDATA[{text}]]>"
    return target.written(lambda text: escape(prepare(text), like=raw))


# ---------------------------------------------------------------------------------------------------------- new tags


def tag(content: Content, element: Element, **values: str | None) -> str:
    """The start tag of an element with attributes set, or removed (None); `_` stands for `-` or `:` (`xml_lang`)."""
    attributes = element.attributes.rstrip()
    for key, value in values.items():
        name = key.replace("xml_", "xml:").replace("_", "-")
        found = next((each for each in _ATTRIBUTE.finditer(attributes) if each[1] == name), None)
        before, after = (attributes[: found.start()], attributes[found.end() :]) if found else (attributes + " ", "")
        attributes = before.rstrip() + after if value is None else f'{before}{name}="{quoted(value)}"{after}'
    return f"<{spelt(content, element)}{attributes}>"


def spelt(content: Content, element: Element) -> str:
    """The name of an element as it is written, with its prefix."""
    return content.text[element.start + 1 : element.attributes_at]


def prefix(content: Content, element: Element) -> str:
    """The prefix of an element's name, with its colon."""
    return spelt(content, element).removesuffix(element.name)


def indent(content: Content, element: Element) -> str:
    """The line end and the white space before an element, to put another of its kind on a line of its own."""
    start = content.text.rfind("\n", 0, element.start) + 1
    space = content.text[start : element.start]
    return content.newline + space if start and not space.strip() else ""


def attribute(content: Content, element: Element, name: str, value: str) -> Iterator[Patch]:
    """The edit that sets an attribute of an element of which nothing else changes."""
    offset = element.attributes_at
    for found in _ATTRIBUTE.finditer(element.attributes):
        if found[1] == name:
            group = 2 if found[2] is not None else 3
            yield Patch(offset + found.start(group), offset + found.end(group), quoted(value))
            return
    end = offset + len(element.attributes.rstrip())
    yield Patch(end, end, f' {name}="{quoted(value)}"')


def quoted(value: str) -> str:
    """The value of an attribute."""
    return escape(value, like="&gt;&quot;&apos;")
