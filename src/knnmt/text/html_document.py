"""Translation of HTML, sentence by sentence: inline tags move with their words, everything else stays.

Comments, attributes, `script`, `style`, `code`, `pre`, and elements with `translate="no"` or the class `notranslate`
are kept as they are.
"""

import html
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

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
        self._parts: list[str | Sentence] = list(_parts(parse(text)))

    @property
    def texts(self) -> list[str]:
        """The texts to translate, in order: the sentences of each block, and of what stands between blocks."""
        return [part.text for part in self._parts if isinstance(part, Sentence)]

    @property
    def tagged(self) -> list[bool]:
        """Which of the texts contain tags: only those need word alignment."""
        return [bool(part.root.inside) for part in self._parts if isinstance(part, Sentence)]

    def translated(self, translations: Sequence[str], align: Callable[[str, str], Sequence[Link]]) -> str:
        """The HTML with its texts replaced by translations; `align` links the words of a text and its translation."""
        pairs = zip(self.texts, translations, strict=True)
        written = []
        for part in self._parts:
            if isinstance(part, Sentence):
                text, translation = next(pairs)
                part = part.placed(translation, align(text, translation) if part.root.inside else ())
            written.append(part)
        return "".join(written)


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
