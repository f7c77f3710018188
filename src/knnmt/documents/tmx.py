"""TMX: units of a translation memory that have no translation into the target language yet get one."""

from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, escape, indent, inline, prefix, quoted, written
from knnmt.documents.patches import Patch
from knnmt.documents.unit import Entry, State, Unit
from knnmt.errors import UsageError
from knnmt.languages import closeness
from knnmt.text.inline import Inline

STATE, NOTE = "x-knnmt-state", "x-knnmt-note"  # properties of translations that were made here
REVIEW = "needs-review"
_CODES = frozenset("bpt ept ph it ut sub".split())


def read_tmx(content: Content) -> Iterator[Entry]:
    """The units that have the source language."""
    if content.languages is None:
        raise UsageError(f"{content.name}: a TMX file holds several languages; name two, such as --langs de-en")
    present: set[str] = set()
    units = found = 0
    for element in elements(content, "tu", root=("tmx",)):
        units += 1
        variants = [(child.get("xml:lang") or child.get("lang"), child) for child in element.children]
        variants = [(tag, child) for tag, child in variants if child.name == "tuv" and child.find("seg") is not None]
        present.update(tag for tag, _ in variants if tag)
        source = _best(variants, content.source)
        if source is not None:
            found += 1
            yield _Variants(content, element, source, _best(variants, content.target))
    if units and not found:
        there = ", ".join(sorted(present)) or "none"
        raise UsageError(f"{content.name}: none of its {units} units has {content.source!r}; its languages are {there}")


def _best(variants: list[tuple[str, Element]], asked: str) -> Element | None:
    ranked = [(closeness(asked, tag), variant) for tag, variant in variants if tag]
    rank, best = max(ranked, key=lambda pair: pair[0], default=(0, None))
    return best if rank else None


def _inline(content: Content, variant: Element) -> tuple[Element, Inline]:
    seg = variant.find("seg")
    assert seg is not None

    def partner(element: Element) -> str | None:
        return element.get("i") if element.name in ("bpt", "ept") else None

    return seg, inline(content, seg, whole=lambda element: element.name in _CODES, partner=partner)


class _Variants(Entry):
    """A `tu`: the variant of the source, and that of the target, or where it goes."""

    def __init__(self, content: Content, element: Element, source: Element, target: Element | None) -> None:
        self.content, self.source, self.target = content, source, target
        self.seg, text = _inline(content, source)
        old = _inline(content, target)[1] if target is not None else None
        marked = [child for child in target.children if child.get("type") == STATE] if target is not None else []
        state = State.UNTRANSLATED
        if old is not None and old.text.strip():
            state = State.FUZZY if marked else State.TRANSLATED
        line, key = content.line(element.start), element.get("tuid")
        self.units = [Unit(text, line=line, key=key, target=old, state=state)]

    def patches(self) -> Iterator[Patch]:
        """The variant of the target, with what there is to say about it."""
        content, unit, name = self.content, self.units[0], prefix(self.content, self.source)
        assert unit.target is not None
        properties = {STATE: "" if unit.state is State.TRANSLATED else REVIEW, NOTE: unit.note}
        marks = "".join(
            f'<{name}prop type="{kind}">{escape(value)}</{name}prop>' for kind, value in properties.items() if value
        )
        seg = f"<{name}seg>{written(unit.target, content, self.seg)}</{name}seg>"
        if self.target is not None:
            for child in self.target.children:
                if child.name == "seg":
                    yield Patch(child.start, child.end, marks + seg)
                elif child.name == "prop" and child.get("type") in properties:
                    yield Patch(child.start, child.end, "")
            return
        language = "xml:lang" if self.source.get("xml:lang") else "lang"
        start = f'<{name}tuv {language}="{quoted(content.target)}">'
        end = self.source.end
        yield Patch(end, end, f"{indent(content, self.source)}{start}{marks}{seg}</{name}tuv>")
