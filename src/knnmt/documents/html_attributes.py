"""Attributes of HTML that people read: titles, alternative texts, labels, what search engines show."""

import html
import re
from collections.abc import Iterator
from typing import NamedTuple

from knnmt.documents.messages import is_text

READ = frozenset(
    "title alt placeholder aria-label aria-description aria-placeholder aria-roledescription aria-valuetext".split()
)
_LABELS = frozenset("optgroup option track".split())  # elements whose `label` is read
_BUTTONS = frozenset("submit button reset".split())  # types of `input` whose `value` is read
_META = frozenset("description keywords og:title og:description twitter:title twitter:description".split())
_ATTRIBUTE = re.compile(r"""([^\s=/>"']+)(?:\s*=\s*("[^"]*"|'[^']*'|[^\s"'>]+))?""")


class Attribute(NamedTuple):
    """The value of an attribute at `text[start:end]`, without its quotes, if it has any."""

    name: str
    start: int
    end: int
    text: str
    quote: str

    def written(self, text: str) -> str:
        """Another text in the place of the value."""
        quote = self.quote or '"'
        text = html.escape(" ".join(text.split("\n")), quote=False).replace(
            quote, "&quot;" if quote == '"' else "&#39;"
        )
        return text if self.quote else f'"{text}"'


def attributes(element: str, rest: str, offset: int) -> Iterator[Attribute]:
    """The attributes with text of a start tag: `rest` is what follows its name, at `offset` of the file."""
    found = [each for each in _ATTRIBUTE.finditer(rest) if each[2]]
    values = {each[1].lower(): each[2].strip("\"'").lower() for each in found}
    for each in found:
        name = each[1].lower()
        if not (
            name in READ
            or (name == "label" and element in _LABELS)
            or (name == "value" and element == "input" and values.get("type") in _BUTTONS)
            or (name == "content" and element == "meta" and values.get("name", values.get("property", "")) in _META)
        ):
            continue
        quote = each[2][0] if each[2][0] in "\"'" else ""
        start, end = each.start(2) + len(quote), each.end(2) - len(quote)
        text = html.unescape(rest[start:end])
        if is_text(text):
            yield Attribute(name, offset + start, offset + end, text, quote)
