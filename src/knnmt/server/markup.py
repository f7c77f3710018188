"""Translation of HTML: its text is translated block by block, its tags go where the words went, the rest stays.

Kept as they are: comments, attributes, `script`, `style`, `code`, `pre`, and whatever has `translate="no"` or the class
`notranslate`.
"""

import html
from collections.abc import Callable, Iterator, Sequence

from knnmt.server.placing import Sentence
from knnmt.server.tags import Element, Node, Text, parse, write
from knnmt.server.words import Link


class Markup:
    """HTML of which the texts are to be translated.

    >>> page = Markup("<p>Das ist <b>ein Haus</b>.</p>")
    >>> page.texts
    ['Das ist ein Haus.']
    >>> page.translated(["That is a house."], align)
    '<p>That is <b>a house</b>.</p>'
    """

    def __init__(self, text: str) -> None:
        self._parts: list[str | Sentence] = list(_parts(parse(text)))

    @property
    def texts(self) -> list[str]:
        """What is to be translated, in order: the text of each block, or of what stands between blocks."""
        return [part.text for part in self._parts if isinstance(part, Sentence)]

    def translated(self, translations: Sequence[str], align: Callable[[str, str], Sequence[Link]]) -> str:
        """The HTML with these translations of its texts; `align` links the words of a text with its translation's."""
        pairs = zip(self.texts, translations, strict=True)
        written = []
        for part in self._parts:
            if isinstance(part, Sentence):
                text, translation = next(pairs)
                part = part.placed(translation, align(text, translation) if part.root.inside else ())
            written.append(part)
        return "".join(written)


def translate_html(
    text: str, translate: Callable[[list[str]], Sequence[str]], align: Callable[[str, str], Sequence[Link]]
) -> str:
    """Translate HTML, all its texts in one call."""
    markup = Markup(text)
    return markup.translated(translate(markup.texts), align)


def _parts(block: Element) -> Iterator[str | Sentence]:
    """A block inside out: markup that stays, and sentences."""
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
    """What stands between two blocks: a sentence with the space around it, or nothing to translate."""
    if not nodes:
        return
    sentence = Sentence(nodes)
    if not any(letter.isalpha() for letter in sentence.text):
        for node in nodes:
            yield from write(node)
        return
    first, last = (html.unescape(node.raw) if isinstance(node, Text) else "" for node in (nodes[0], nodes[-1]))
    yield _escaped(first[: len(first) - len(first.lstrip())])
    yield sentence
    yield _escaped(last[len(last.rstrip()) :])


def _escaped(space: str) -> str:
    return space.replace("\u00a0", "&nbsp;")
