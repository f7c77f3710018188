"""XLIFF 1.2, 2.0 and 2.1: segments with inline codes, states and notes, edited in place."""

from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.markup import (
    Element,
    attribute,
    elements,
    escape,
    indent,
    inline,
    prefix,
    spelt,
    tag,
    written,
)
from knnmt.documents.patches import Patch
from knnmt.documents.unit import Entry, State, Unit
from knnmt.text.inline import Inline

AUTHOR = "knnmt"  # of notes
MACHINE = "knnmt:mt"  # the subState of machine translations in XLIFF 2
_WHOLE = frozenset("x bx ex ph bpt ept it ut sub sc ec cp sm em".split())  # elements that are codes with their content
_UNTRANSLATED = frozenset(["new", "needs-translation", "initial"])
_DONE = frozenset(["translated", "signed-off", "final", "reviewed"])


def read_xliff(content: Content) -> Iterator[Entry]:
    """The units of a file, without those that are not to be translated."""
    for element in elements(content, "trans-unit", "unit", root=("xliff",)):
        *_, root = element.ancestors()
        if element.name == "unit":
            content.require(source=root.get("srcLang"), target=root.get("trgLang"))
            if element.inherited("translate") != "no":
                yield _Segments(content, element, root)
        else:
            file = next(each for each in element.ancestors() if each.name == "file" or each is root)
            content.require(source=file.get("source-language"), target=file.get("target-language"))
            if element.inherited("translate") != "no" and element.find("source") is not None:
                yield _TransUnit(content, element, file)


def _whole(element: Element) -> bool:
    protected = element.get("mtype") == "protected" or element.get("translate") == "no"
    return element.name in _WHOLE or (element.name == "mrk" and protected) or ":" in element.name


def _partner(element: Element) -> str | None:
    """What two codes have in common that are the ends of one span."""
    if element.name in ("bx", "ex", "bpt", "ept"):
        return element.get("rid") or element.get("id")
    if element.name in ("sc", "sm"):
        return element.get("id")
    return element.get("startRef") if element.name in ("ec", "em") else None


def _inline(content: Content, element: Element) -> Inline:
    return inline(content, element, whole=_whole, partner=_partner)


def _target_of(content: Content, element: Element | None) -> Inline | None:
    found = _inline(content, element) if element is not None else None
    return found if found is not None and (found.text or found.codes) else None


def _state(target: Inline | None, declared: str, sub: str = "") -> State:
    if target is None or declared in _UNTRANSLATED:
        return State.UNTRANSLATED
    done = not declared or (declared in _DONE and sub != MACHINE)
    return State.TRANSLATED if done else State.FUZZY


class _TransUnit(Entry):
    """A `trans-unit` of XLIFF 1.2, with a unit for each of its segments if it has a `seg-source`."""

    def __init__(self, content: Content, element: Element, file: Element) -> None:
        self.content, self.element, self.file = content, element, file
        source, self.target = element.find("source"), element.find("target")
        assert source is not None
        self.segmented = element.find("seg-source")
        found = [each for each in _marks(self.segmented) if each.get("mtype") == "seg"]
        self.sources = found or [source]
        self.segmented = self.segmented if found else None
        self.source, declared = source, self.target.get("state") if self.target is not None else ""
        by_id = {each.get("mid"): each for each in _marks(self.target)}
        self.units = []
        for part in self.sources:
            text = _inline(content, part)
            old = _target_of(content, by_id.get(part.get("mid")) if found else self.target)
            state = _state(old, declared)
            key = element.get("resname") or element.get("id")
            self.units.append(Unit(text, line=content.line(part.start), key=key, target=old, state=state))

    def patches(self) -> Iterator[Patch]:
        """The target with its state, the note, and the file's target language."""
        content, fuzzy = self.content, self.state is not State.TRANSLATED
        states: dict[str, str | None] = {
            "state": "needs-review-translation" if fuzzy else "translated",
            "state_qualifier": "leveraged-mt" if fuzzy else None,
        }
        behind = self.element.find("seg-source") or self.source
        if self.target is not None:
            start, name = tag(content, self.target, **states), spelt(content, self.target)
            yield Patch(self.target.start, self.target.end, f"{start}{self._written()}</{name}>")
            behind = self.target
        else:
            name = prefix(content, self.source) + "target"
            attributes = "".join(f' {key.replace("_", "-")}="{value}"' for key, value in states.items() if value)
            new = f"{indent(content, behind)}<{name}{attributes}>{self._written()}</{name}>"
            yield Patch(behind.end, behind.end, new)
        if fuzzy and self.element.get("approved"):
            yield from attribute(content, self.element, "approved", "no")
        yield from self._note(behind)
        if content.target and self.file.name == "file" and not self.file.get("target-language"):
            yield from attribute(content, self.file, "target-language", content.target)

    def _written(self) -> str:
        """The content of the target: that of the source, with the translations of its segments."""
        pieces, text = list[str](), self.content.text
        at = self.segmented.inner if self.segmented is not None else self.source.inner
        for part, unit in zip(self.sources, self.units, strict=True):
            new = written(unit.target, self.content, part) if unit.target is not None else ""
            pieces += (text[at : part.inner], new) if self.segmented is not None else (new,)
            at = part.outer
        return "".join(pieces) + (text[at : self.segmented.outer] if self.segmented is not None else "")

    def _note(self, behind: Element) -> Iterator[Patch]:
        """One note for all segments; one of an earlier run is replaced."""
        notes = [child for child in self.element.children if child.name == "note" and child.get("from") == AUTHOR]
        told = "; ".join(unit.note for unit in self.units if unit.note)
        name = prefix(self.content, self.source) + "note"
        new = f'<{name} from="{AUTHOR}">{escape(told)}</{name}>' if told else ""
        if notes:
            yield Patch(notes[0].start, notes[0].end, new)
        elif new:
            yield Patch(behind.end, behind.end, indent(self.content, behind) + new)


def _marks(element: Element | None) -> Iterator[Element]:
    """The `mrk` elements inside, at any depth."""
    for child in element.children if element is not None else ():
        if child.name == "mrk":
            yield child
        yield from _marks(child)


class _Segments(Entry):
    """A `unit` of XLIFF 2, with a unit for each of its segments."""

    def __init__(self, content: Content, element: Element, root: Element) -> None:
        self.content, self.element, self.root = content, element, root
        self.segments = [(segment, source) for segment in element.children if (source := _source_of(segment))]
        self.units = []
        for segment, source in self.segments:
            text, old = _inline(content, source), _target_of(content, segment.find("target"))
            state = _state(old, segment.get("state"), segment.get("subState"))
            key = element.get("name") or element.get("id")
            self.units.append(Unit(text, line=content.line(source.start), key=key, target=old, state=state))

    def patches(self) -> Iterator[Patch]:
        """The targets, the states of their segments, the notes, and the file's target language."""
        content, told = self.content, []
        for (segment, source), unit in zip(self.segments, self.units, strict=True):
            if not unit.changed:
                continue
            assert unit.target is not None
            name, old = prefix(content, source) + "target", segment.find("target")
            new = f"{written(unit.target, content, source)}</{name}>"
            if old is not None:
                yield Patch(old.start, old.end, tag(content, old) + new)
            else:
                yield Patch(source.end, source.end, f"{indent(content, source)}<{name}>{new}")
            sub = None if unit.state is State.TRANSLATED else MACHINE
            yield Patch(segment.start, segment.inner, tag(content, segment, state="translated", subState=sub))
            if unit.note:
                told.append(f"segment {segment.get('id')}: {unit.note}" if segment.get("id") else unit.note)
        yield from self._notes(told)
        if content.target and not self.root.get("trgLang"):
            yield from attribute(content, self.root, "trgLang", content.target)

    def _notes(self, told: list[str]) -> Iterator[Patch]:
        """Notes in the unit's `notes`, which come before its segments and their data; those of before are replaced."""
        content, lead, notes = self.content, prefix(self.content, self.element), self.element.find("notes")
        new = "".join(f'<{lead}note category="{AUTHOR}">{escape(note)}</{lead}note>' for note in told)
        for old in notes.children if notes is not None else ():
            if old.get("category") == AUTHOR:
                yield Patch(old.start, old.end, "")
        if notes is not None and not notes.empty:
            yield Patch(notes.outer, notes.outer, new)
        elif notes is not None:
            yield Patch(notes.start, notes.end, f"<{lead}notes>{new}</{lead}notes>")
        elif new:
            first = next(
                each for each in self.element.children if each.name in ("originalData", "segment", "ignorable")
            )
            yield Patch(first.start, first.start, f"<{lead}notes>{new}</{lead}notes>{indent(content, first)}")


def _source_of(segment: Element) -> Element | None:
    return segment.find("source") if segment.name == "segment" else None
