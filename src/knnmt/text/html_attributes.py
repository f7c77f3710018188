"""The attributes of an HTML tag, and which of them people read: titles, alternative texts, labels, descriptions."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from knnmt.text.words import is_text

READ = frozenset(
    "title alt placeholder aria-label aria-description aria-placeholder aria-roledescription aria-valuetext".split()
)
_LABELS = frozenset("optgroup option track".split())  # elements whose `label` is read
_BUTTONS = frozenset("submit button reset".split())  # types of `input` whose `value` is read
_CODE = frozenset("script style code pre xmp noembed noframes svg math".split())  # elements that are no text at all
_META = frozenset("description keywords og:title og:description twitter:title twitter:description".split())

_BETWEEN = re.compile("(?:[ \t\n\f\r]|/(?!>))*+")  # separates attributes; a slash before `>` closes the tag
_NAME = re.compile("=?[^ \t\n\f\r/>=]*+")
_EQUALS = re.compile("[ \t\n\f\r]*+=[ \t\n\f\r]*+")
_UNQUOTED = re.compile("[^ \t\n\f\r>]*+")


class Attribute(NamedTuple):
    """An attribute whose value stands at `text[start:end]`, without its quotes, if it has any."""

    name: str  # in lower case
    start: int
    end: int
    quote: str
    value: str  # without references

    def written(self, value: str) -> str:
        """Another value, as it is written in the place of this one."""
        quote = self.quote or '"'
        value = html.escape(" ".join(value.split("\n")), quote=False).replace(
            quote, "&quot;" if quote == '"' else "&#39;"
        )
        return value if self.quote else f'"{value}"'


def attributes_of(text: str, at: int) -> tuple[list[Attribute], int] | None:
    """The attributes of a start tag, from behind its name, and where `>` or `/>` ends it; None if the text ends first.

    Tokenized as browsers do (WHATWG HTML, 13.2.5).
    """
    found: dict[str, Attribute] = {}
    at = _end(_BETWEEN, text, at)
    while at < len(text):
        if text[at] == ">" or text.startswith("/>", at):
            return list(found.values()), at
        name, at = text[at : (stop := _end(_NAME, text, at))].lower(), stop
        start, quote = at, ""
        if equals := _EQUALS.match(text, at):
            start = equals.end()
            if text[start : start + 1] in ('"', "'"):
                quote, start = text[start], start + 1
                stop = text.find(quote, start)
                if stop < 0:
                    return None
            else:
                stop = _end(_UNQUOTED, text, start)
        found.setdefault(name, Attribute(name, start, stop, quote, html.unescape(text[start:stop])))
        at = _end(_BETWEEN, text, stop + len(quote))
    return None


def read_by_people(element: str, attributes: list[Attribute]) -> Iterator[Attribute]:
    """Those attributes of an element, named in lower case, that have text to translate; none if it says so itself."""
    values = {each.name: each.value.lower() for each in attributes}
    if not_translated(attributes) or element in _CODE or "stylesheet" in values.get("rel", ""):
        return
    for each in attributes:
        read = (
            each.name in READ
            or (each.name == "label" and element in _LABELS)
            or (each.name == "value" and element == "input" and values.get("type") in _BUTTONS)
            or (each.name == "content" and values.get("name", values.get("property", "")) in _META)
        )
        if read and each.end > each.start and is_text(each.value):
            yield each


def not_translated(attributes: list[Attribute]) -> bool:
    """Whether `translate="no"` or the class `notranslate` is among the attributes."""
    values = {each.name: each.value for each in attributes}
    return values.get("translate", "").lower() == "no" or "notranslate" in values.get("class", "").split()


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Where a pattern that matches the empty string ends."""
    found = pattern.match(text, at)
    assert found is not None
    return found.end()
