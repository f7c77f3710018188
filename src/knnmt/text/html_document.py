"""Translation of HTML, sentence by sentence: inline tags move with their words, everything else stays.

Attributes that people read, such as `title` and `alt`, are texts too. Comments, other attributes, `script`, `style`,
`code`, `pre`, and elements with `translate="no"` or the class `notranslate` are kept as they are.
"""

import html
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from knnmt.text.html_attributes import Attribute
from knnmt.text.html_sentence import Sentence
from knnmt.text.html_tree import Element, Node, Text, parse, write
from knnmt.text.sentences import sentence_ends
from knnmt.text.words import Link


class HtmlDocument:
    """HTML with its translatable texts.

    >>> page = HtmlDocument("<p>Das ist <b>ein Haus</b>.</p>")
    >>> page.texts
    ['Das ist ein Haus.']
    >>> page.translated(["That is a house."], align)
    '<p>That is <b>a house</b>.</p>'
    """

    def __init__(self, text: str) -> None:
        self._root = parse(text)
        self._parts = list(_parts(self._root))
        self._tags = [(element, element.start) for element in _elements(self._root) if element.read]

    @property
    def texts(self) -> list[str]:
        """The texts to translate: the sentences of each block and of what stands between blocks, then attributes."""
        sentences = [part.text for part in self._parts if isinstance(part, Sentence)]
        return sentences + [attribute.value for element, _ in self._tags for attribute in element.read]

    @property
    def tagged(self) -> list[bool]:
        """Which of the texts contain tags: only those need word alignment."""
        sentences = [bool(part.root.inside) for part in self._parts if isinstance(part, Sentence)]
        return sentences + [False for element, _ in self._tags for _ in element.read]

    def translated(self, translations: Sequence[str], align: Callable[[str, str], Sequence[Link]]) -> str:
        """The HTML with its texts replaced by translations; `align` links the words of a text and its translation."""
        count = sum(isinstance(part, Sentence) for part in self._parts)
        parts, values = self._parts, iter(translations[count:])
        if self._tags:
            for element, start in self._tags:
                element.start = _with_values(start, element.read, values)
            parts = list(_parts(self._root))
        pairs = zip(self.texts[:count], translations[:count], strict=True)
        written = []
        for part in parts:
            if isinstance(part, Sentence):
                text, translation = next(pairs)
                part = part.placed(translation, align(text, translation) if part.root.inside else ())
            written.append(part)
        return "".join(written)


def _elements(element: Element) -> Iterator[Element]:
    """All elements of a tree, in order, but for what is inside those that are kept as they are."""
    yield element
    for child in element.children if not element.keep else ():
        if isinstance(child, Element):
            yield from _elements(child)


def _with_values(start: str, attributes: Sequence[Attribute], values: Iterator[str]) -> str:
    """A start tag with the next values in the places of its attributes; those that are the same stay as written."""
    written, at = "", 0
    for attribute in attributes:
        value = next(values)
        if value != attribute.value:
            written += start[at : attribute.start] + attribute.written(value)
            at = attribute.end
    return written + start[at:]


def _parts(block: Element) -> Iterator[str | Sentence]:
    """Flatten a block into markup to keep and sentences."""
    run: list[Node] = []
    for child in block.children:
        if isinstance(child, Element) and child.block:
            yield from _run(run)
            run = []
            if child.keep:
                yield from write(child)
            else:
                yield child.start
                yield from _parts(child)
                yield child.end
        else:
            run.append(child)
    yield from _run(run)


def _run(nodes: Sequence[Node]) -> Iterator[str | Sentence]:
    """The inline content between two blocks."""
    for some in _cut(nodes):
        yield from _sentence(some)


def _cut(nodes: Sequence[Node]) -> Iterator[list[Node]]:
    """Split after sentences that no tag spans, and after line breaks that end a sentence or follow each other."""
    some: list[Node] = []
    before = ""  # the preceding text, or "<br>"
    for node in nodes:
        if isinstance(node, Text):
            ends = [0, *sentence_ends(node.raw), len(node.raw)]
            for start, end in pairwise(ends):
                some.append(Text(node.raw[start:end]))
                if end < len(node.raw):
                    yield some
                    some = []
            before = node.raw.rstrip() or before
        elif isinstance(node, Element) and node.name == "br":
            some.append(node)
            if before.endswith((".", "!", "?", "…", ":", ";", "<br>")):
                yield some
                some = []
            before = "<br>"
        else:
            some.append(node)
            before = ""
    if some:
        yield some


def _sentence(nodes: Sequence[Node]) -> Iterator[str | Sentence]:
    """A sentence with the space around it, or markup to keep if it contains no letters."""
    sentence = Sentence(nodes)
    if not any(letter.isalpha() for letter in sentence.text):
        for node in nodes:
            yield from write(node)
        return
    first, last = (html.unescape(node.raw) if isinstance(node, Text) else "" for node in (nodes[0], nodes[-1]))
    yield _escape_space(first[: len(first) - len(first.lstrip())])
    yield sentence
    yield _escape_space(last[len(last.rstrip()) :])


def _escape_space(space: str) -> str:
    return space.replace("\u00a0", "&nbsp;")
