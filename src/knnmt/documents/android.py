"""Android's `strings.xml`: strings, arrays and plurals, with Android's own escapes."""

import re
from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, indent, inline, spelt, tag, written
from knnmt.documents.patches import Patch
from knnmt.documents.plurals import plurals_of
from knnmt.documents.unit import Entry, Unit, cut
from knnmt.text.inline import Inline

_TOKEN = re.compile(r"\\(u[0-9a-fA-F]{4}|.)|\"|\s+", re.DOTALL)
_QUOTED = re.compile(r'^\s*(?!<!\[CDATA).*(?<!\\)"', re.DOTALL)  # in CDATA, quotes are those of HTML
_REFERENCE = re.compile(r"[@?](?:\+?[\w.]+:)?\w+/[\w.]+|@null")
_UNESCAPED = {"n": "\n", "t": "\t"}
_ESCAPED = str.maketrans({"\\": "\\\\", "'": "\\'", '"': '\\"', "\n": "\\n", "\t": "\\t"})
_SPACE = re.compile(r"(?<= ) |\u00a0")  # a second space would be collapsed; a hard one cannot be seen


def read_android(content: Content) -> Iterator[Entry]:
    """The strings that are translatable and have text of their own."""
    for element in elements(content, "string", "string-array", "plurals", root=("resources",)):
        if element.get("translatable") == "false":
            continue
        parts = [element] if element.name == "string" else [each for each in element.children if each.name == "item"]
        found = [(part, _inline(content, part)) for part in parts]
        found = [(part, text) for part, text in found if text.text.strip() and not _REFERENCE.fullmatch(text.text)]
        if found and element.name == "plurals":
            yield _Plurals(content, element, found)
        else:
            yield from (_String(content, element, part, text) for part, text in found)


def _inline(content: Content, element: Element) -> Inline:
    """The text of a string, without the white space around it, which Android ignores unless it is in quotes."""
    raw = content.text[element.inner : element.outer]
    quoted = bool(_QUOTED.search(raw))

    def unescaped(found: re.Match[str]) -> str:
        if (name := found[1]) is not None:
            return chr(int(name[1:], 16)) if len(name) > 1 else _UNESCAPED.get(name, name)
        if found[0] == '"':
            return "" if quoted else '"'
        return found[0] if quoted else " "

    text = inline(
        content,
        element,
        whole=lambda child: child.name == "xliff:g",
        clean=lambda piece: _TOKEN.sub(unescaped, piece),
    )
    if quoted:
        return text
    return cut(text, int(raw[:1].isspace()), len(text.text) - int(raw[-1:].isspace()))


def _written(content: Content, element: Element, target: Inline) -> str:
    """A translation as Android wants it, with the white space that was around the source."""
    raw = content.text[element.inner : element.outer]

    def escaped(piece: str) -> str:
        piece = _SPACE.sub(lambda found: f"\\u{ord(found[0]):04x}", piece.translate(_ESCAPED))
        return piece if '\\"' in raw or "<![CDATA[" not in raw else piece.replace('\\"', '"')

    new = written(target, content, element, escaped)
    if target.text[:1].isspace():
        new = new.replace(" ", "\\u0020", 1)
    if target.text[-1:] == " ":
        new = new[: new.rindex(" ")] + "\\u0020" + new[new.rindex(" ") + 1 :]
    if new.startswith(("@", "?")):
        new = "\\" + new
    if _QUOTED.search(raw):
        return new
    return raw[: len(raw) - len(raw.lstrip())] + new + raw[len(raw.rstrip()) :]


class _String(Entry):
    """A string, or an item of an array."""

    def __init__(self, content: Content, named: Element, part: Element, text: Inline) -> None:
        self.content, self.part = content, part
        self.units = (Unit(text, line=content.line(part.start), key=named.get("name")),)

    def patches(self) -> Iterator[Patch]:
        """The translation, in the place of the source."""
        target = self.units[0].target
        assert target is not None
        yield Patch(self.part.inner, self.part.outer, _written(self.content, self.part, target))


class _Plurals(Entry):
    """A string with quantities, of which the target language may need others: they are made from that of `other`."""

    def __init__(self, content: Content, element: Element, found: list[tuple[Element, Inline]]) -> None:
        self.content = content
        there = {part.get("quantity"): (part, text) for part, text in found}
        model = there.get("other", found[-1])
        needed = (*plurals_of(content.target).categories, "other") if content.target else ()
        self.parts = [(quantity, part) for quantity, (part, _) in there.items()]
        self.parts += [(name, model[0]) for name in dict.fromkeys(needed) if name not in there]
        texts = [there.get(quantity, model)[1] for quantity, _ in self.parts]
        line = content.line(element.start)
        self.units = [Unit(text, line=line, key=element.get("name")) for text in texts]
        self.last = found[-1][0]

    def patches(self) -> Iterator[Patch]:
        """The translations of what is there, and new items behind the last."""
        for (quantity, part), unit in zip(self.parts, self.units, strict=True):
            if unit.target is None:
                continue
            new = _written(self.content, part, unit.target)
            if part.get("quantity") == quantity:
                yield Patch(part.inner, part.outer, new)
            else:
                item = f"{tag(self.content, part, quantity=quantity)}{new}</{spelt(self.content, part)}>"
                yield Patch(self.last.end, self.last.end, indent(self.content, self.last) + item)
