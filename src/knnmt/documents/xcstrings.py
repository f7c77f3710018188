"""Apple's string catalogs, `.xcstrings`: JSON with all languages of each string."""

from collections.abc import Iterator

from knnmt.documents.content import Content
from knnmt.documents.json_tree import Node, Writer, indentation, parse, writer
from knnmt.documents.patches import Patch
from knnmt.documents.plurals import plurals_of
from knnmt.documents.unit import Entry, Left, State, Unit
from knnmt.languages import closeness
from knnmt.text.inline import Inline
from knnmt.text.words import is_text

_STATES = {State.FUZZY: "needs_review", State.TRANSLATED: "translated", State.UNTRANSLATED: "new"}
_STEP = "  "  # by which Xcode indents


def read_xcstrings(content: Content) -> Iterator[Entry]:
    """The strings of a catalog that are to be translated."""
    root, write = parse(content), writer(content)
    language = root.get("sourceLanguage")
    strings = root.get("strings")
    if language is None or strings is None:
        raise content.error(root.start, "no sourceLanguage or strings: this is no string catalog of Xcode")
    content.require(source=language.text or "")
    for node in strings.members:
        skipped = node.get("shouldTranslate")
        if node.kind != "{" or (skipped is not None and content.text[skipped.start : skipped.end] == "false"):
            continue
        localizations = node.get("localizations")
        there = localizations.members if localizations is not None else []
        source = next((each for each in there if each.key == language.text), None)
        target = next((each for each in there if content.target and closeness(content.target, each.key)), None)
        forms = _forms(content, node.key, source)
        if forms is None or (target is not None and _forms(content, "", target) is None):
            yield Left(content.line(node.start), "string with variations of devices or substitutions")
        elif any(is_text(text) for text in forms.values()):
            yield _Localized(content, node, localizations, target, forms, write)


def _forms(content: Content, key: str, localization: Node | None) -> dict[str, str] | None:
    """The texts of a localization by plural category, "" for one without; None where there is more to it."""
    if localization is None:
        return {"": key}
    if (value := _value(localization)) is not None:
        return {"": value}
    variations = localization.get("variations")
    plural = variations.get("plural") if variations is not None else None
    if (
        plural is None
        or localization.get("substitutions") is not None
        or len(variations.members if variations else ()) > 1
    ):
        return None
    texts = {each.key: _value(each) for each in plural.members}
    return {name: text for name, text in texts.items() if text is not None}


def _value(node: Node) -> str | None:
    unit = node.get("stringUnit")
    value = unit.get("value") if unit is not None else None
    return value.text if value is not None else None


class _Localized(Entry):
    """A string, with a unit for each plural category of the target language if it varies."""

    def __init__(
        self, content: Content, node: Node, localizations: Node | None, target: Node | None, forms: dict[str, str],
        write: Writer,
    ) -> None:  # fmt: skip
        self.content, self.node, self.localizations, self.target, self.write = (
            content,
            node,
            localizations,
            target,
            write,
        )
        plural = "" not in forms
        other = forms.get("other", next(iter(forms.values()), ""))
        names = dict.fromkeys((*plurals_of(content.target or "en").categories, "other")) if plural else {"": None}
        self.names = list(names)
        old = _forms(content, "", target) if target is not None else {}
        line = content.line(node.start)
        self.units = []
        for name in self.names:
            text = (old or {}).get(name)
            state = self._state_of(name) if text else State.UNTRANSLATED
            found = Inline.plain(text) if text else None
            source = Inline.plain(forms.get(name, other))
            self.units.append(Unit(source, line=line, key=node.key, target=found, state=state))

    def _state_of(self, name: str) -> State:
        start, end = (self.target.start, self.target.end) if self.target is not None else (0, 0)
        written = self.content.text[start:end]
        return State.TRANSLATED if '"needs_review"' not in written and '"new"' not in written else State.FUZZY

    def patches(self) -> Iterator[Patch]:
        """The localization into the target language, in place of the old one or beside the others."""
        content = self.content
        new = {name: unit for name, unit in zip(self.names, self.units, strict=True) if unit.target is not None}
        if self.target is not None:
            space = indentation(content, self.target)
            yield Patch(self.target.start, self.target.end, self._localization(new, space))
        elif self.localizations is not None and self.localizations.members:
            last = self.localizations.members[-1]
            space = indentation(content, last)
            yield Patch(last.end, last.end, f",{space}{self.write(content.target)} : {self._localization(new, space)}")
        else:
            space = indentation(content, self.node) + _STEP
            inner = f"{space}{_STEP}{self.write(content.target)} : {self._localization(new, space + _STEP)}"
            members = [each for each in self.node.members if each is not self.localizations]
            whole = f"{space}{self.write('localizations')} : {{{inner}{space}}}"
            if self.localizations is not None:
                at = self.localizations
                yield Patch(at.start, at.end, f"{{{inner}{space}}}")
            elif members:
                yield Patch(members[-1].end, members[-1].end, f",{whole}")
            else:
                yield Patch(self.node.start, self.node.end, f"{{{whole}{space.removesuffix(_STEP)}}}")

    def _localization(self, units: dict[str, Unit], space: str) -> str:
        """A localization as Xcode writes it; `space` is the line end and indentation of its key."""
        if "" in units:
            return f"{{{space}{_STEP}{self._unit(units[''], space + _STEP)}{space}}}"
        deep = space + 3 * _STEP
        forms = ",".join(
            f"{deep}{self.write(name)} : {{{deep}{_STEP}{self._unit(unit, deep + _STEP)}{deep}}}"
            for name, unit in sorted(units.items())
        )
        plural = f"{space}{2 * _STEP}{self.write('plural')} : {{{forms}{space}{2 * _STEP}}}"
        return f"{{{space}{_STEP}{self.write('variations')} : {{{plural}{space}{_STEP}}}{space}}}"

    def _unit(self, unit: Unit, space: str) -> str:
        assert unit.target is not None
        state = f"{space}{_STEP}{self.write('state')} : {self.write(_STATES[unit.state])}"
        value = f"{space}{_STEP}{self.write('value')} : {self.write(unit.target.text)}"
        return f"{self.write('stringUnit')} : {{{state},{value}{space}}}"
