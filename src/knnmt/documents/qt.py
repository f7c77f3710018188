"""Qt Linguist's `.ts`: messages in contexts, with plural forms, edited in place."""

from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, attribute, elements, escape, indent, inline, prefix, tag
from knnmt.documents.patches import Patch
from knnmt.documents.plurals import plurals_of
from knnmt.documents.unit import Entry, State, Unit
from knnmt.languages import standard_tag
from knnmt.text.inline import Inline

_FORMS = {"cy": 5, "ga": 3, "he": 2, "mk": 3, "mt": 4}  # where Qt counts otherwise than gettext
_GONE = frozenset(["obsolete", "vanished"])
_QUOTED = "&quot;&apos;&gt;"  # Qt writes references for all of them


def read_qt(content: Content) -> Iterator[Entry]:
    """The messages that are still in use."""
    context = ""
    for element in elements(content, "message", "name", root=("TS",)):
        *_, root = element.ancestors()
        content.require(source=root.get("sourcelanguage"), target=root.get("language"))
        if element.name == "name":
            context = content.text[element.inner : element.outer]
            continue
        source, translation = element.find("source"), element.find("translation")
        if source is None or (translation is not None and translation.get("type") in _GONE):
            continue
        if translation is None or not any(child.name == "lengthvariant" for child in translation.children):
            yield _Message(content, element, source, translation, context, root)


def _inline(content: Content, element: Element) -> Inline:
    return inline(content, element, whole=lambda _: True)  # `<byte value="x1b"/>`


class _Message(Entry):
    """A message, with a unit for each plural form if it has a number."""

    def __init__(
        self, content: Content, element: Element, source: Element, translation: Element | None, key: str, root: Element
    ) -> None:
        self.content, self.source, self.translation, self.root = content, source, translation, root
        self.numerus = element.get("numerus") == "yes"
        if self.numerus:
            forms = [each for each in translation.children if each.name == "numerusform"] if translation else []
            language = standard_tag(content.target or root.get("language") or "en").split("-")[0]
            count = len(forms) or _FORMS.get(language) or plurals_of(language).count
            old = [_inline(content, form) for form in forms] or [Inline("")] * count
        else:
            old = [_inline(content, translation) if translation is not None else Inline("")]
        declared = translation.get("type") if translation is not None else "unfinished"
        state = State.FUZZY if declared == "unfinished" else State.TRANSLATED
        if not all(each.text or each.codes for each in old):
            state = State.UNTRANSLATED
        text, line = _inline(content, source), content.line(source.start)
        self.units = [Unit(text, line=line, key=key, target=each if each.text else None, state=state) for each in old]

    def patches(self) -> Iterator[Patch]:
        """The translation; `unfinished` is what asks for a review."""
        content = self.content
        forms = [
            unit.target.written(lambda text: escape(text, like=_QUOTED)) if unit.target is not None else ""
            for unit in self.units
        ]
        kind = None if self.state is State.TRANSLATED else "unfinished"
        new = forms[0]
        if self.numerus:
            lead, space = prefix(content, self.source), indent(content, self.source)
            deeper = space + space.strip("\r\n")[:4] if space else ""
            new = "".join(f"{deeper}<{lead}numerusform>{form}</{lead}numerusform>" for form in forms) + space
        name = prefix(content, self.source) + "translation"
        if self.translation is not None:
            start = tag(content, self.translation, type=kind)
            yield Patch(self.translation.start, self.translation.end, f"{start}{new}</{name}>")
        else:
            attributes = f' type="{kind}"' if kind else ""
            end = self.source.end
            yield Patch(end, end, f"{indent(content, self.source)}<{name}{attributes}>{new}</{name}>")
        if content.target and not self.root.get("language"):
            yield from attribute(content, self.root, "language", content.target.replace("-", "_"))
