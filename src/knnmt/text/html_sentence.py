"""A sentence of HTML: its text, to be translated, and its tags, to be placed in the translation."""

import html
from collections.abc import Sequence

from knnmt.text.html_tree import Element, Node, Text, write
from knnmt.text.placement import CLOSING, Span, number, place
from knnmt.text.words import Link, words


class Sentence:
    """Inline HTML: its text, to be translated, and its tags, which `placed` puts into the translation."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._pieces: list[str] = []
        self._length = 0
        self._space = False  # a space is pending after the text so far
        self._break = False  # or a line break, which separates words as well
        self._waiting: list[Span] = []  # spans that end where the text so far ends
        self._after_tag = False
        self.root = self._read(Span(), nodes)
        for span in self._waiting:
            span.space_after = True
        self.text = "".join(self._pieces)
        begins = [begin for begin, _ in words(self.text)]
        number(self.root, begins)

    def _read(self, span: Span, nodes: Sequence[Node]) -> Span:
        span.begin, span.space_before = self._length, self._space or not self._length
        for node in nodes:
            if isinstance(node, Text):
                self._add(html.unescape(node.raw))
                continue
            self._waiting = []
            if isinstance(node, Element) and not node.keep:
                inner = self._read(Span(node.start, node.end, node.name), node.children)
            else:
                inner = self._read(Span("".join(write(node)), visible=isinstance(node, Element)), [])
            span.inside.append(inner)
            self._waiting.append(inner)
            self._after_tag = True
            self._break = self._break or inner.name == "br"
        span.stop = self._length
        return span

    def _add(self, text: str) -> None:
        if not text:
            return
        for span in self._waiting:
            span.space_after = text[0].isspace()
        self._waiting = []
        self._space = self._space or text[0].isspace()
        if plain := " ".join(text.split()):
            # no space before punctuation that follows a tag
            superfluous = self._after_tag and plain.startswith(CLOSING)
            if (self._space or self._break) and self._length and not superfluous:
                plain = " " + plain
            self._pieces.append(plain)
            self._length += len(plain)
            self._space, self._break, self._after_tag = text[-1].isspace(), False, False

    def placed(self, translation: str, links: Sequence[Link]) -> str:
        """The translation as HTML with all tags, given the links between the words of text and translation."""
        marks = place(self.root, translation, links, lambda text: html.escape(text, quote=False))
        return "".join(map(str, marks))
