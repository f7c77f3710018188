"""Translations of plain texts, HTML and XML: tags stay around the words that translate theirs."""

import itertools
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from typing import Literal

import anyio.to_thread
from fastapi import HTTPException

from knnmt.documents.content import Content
from knnmt.documents.markup import Element, elements, inline, written
from knnmt.errors import DataError
from knnmt.server.desks import Desk
from knnmt.server.server import Server
from knnmt.server.work_items import DecodingOptions
from knnmt.text.html_document import HtmlDocument
from knnmt.text.inline import Inline
from knnmt.text.words import Link, Pair

Kind = Literal["text", "html", "xml"]
ALIGNED = 2000  # characters of texts and translations aligned at a time
MALFORMED = "Tag handling parsing failed, please check input"
ROOT = "x"  # of the element that a text is put into: XML has one root


async def translations(
    server: Server, desk: Desk, texts: list[str], kind: Kind, options: DecodingOptions, ignored: Collection[str] = ()
) -> list[list[str]]:
    """The translations of each text, best first. `ignored`: elements of XML that stay as they are."""
    if kind == "text":
        found = await server.translate(desk, texts, options)
        return [[each.text for each in (best, *best.alternatives)] for best in found]
    known = await server.worker.call_soon(lambda: server.verbatim(desk, texts))  # taught with its tags
    as_text = iter(await translations(server, desk, list(itertools.compress(texts, known)), "text", options))
    others = [text for text, is_known in zip(texts, known, strict=True) if not is_known]
    if kind == "html":
        marked_up = iter(await _translated_html(server, desk, others, options))
    else:
        marked_up = iter(await _translated_xml(server, desk, others, options, ignored))
    return [next(as_text if is_known else marked_up) for is_known in known]


# --------------------------------------------------------------------------------------------------------------- HTML


async def _translated_html(server: Server, desk: Desk, texts: list[str], options: DecodingOptions) -> list[list[str]]:
    """The translations of each page, best first. Pages with thousands of tags are handled outside the event loop."""
    pages = await anyio.to_thread.run_sync(lambda: [HtmlDocument(text) for text in texts])
    server.checks.segments(sum(len(page.texts) for page in pages))
    found = iter(await server.translate(desk, [text for page in pages for text in page.texts], options))
    chosen: list[list[list[str]]] = []  # for each page and rank: the translations of its texts
    for page in pages:
        every = [(best, *best.alternatives) for best in itertools.islice(found, len(page.texts))]
        ranks = range(min(options.n_best, max(map(len, every), default=1)))
        chosen.append([[each[min(rank, len(each) - 1)].text for each in every] for rank in ranks])
    align = desk.translator.align
    links: dict[Pair, list[Link]] = {}
    pairs = [pair for page, ranked in zip(pages, chosen, strict=True) for some in ranked for pair in _pairs(page, some)]
    for some in _portions(pairs):  # the tokenizer belongs to the model's thread
        links |= await server.worker.call_soon(partial(align, some))

    def place() -> list[list[str]]:
        every = zip(pages, chosen, strict=True)
        return [[page.translated(some, lambda *pair: links[pair]) for some in ranked] for page, ranked in every]

    return await anyio.to_thread.run_sync(place)


def _pairs(page: HtmlDocument, translations: list[str]) -> Iterator[Pair]:
    """The texts that contain tags, with their translations."""
    return itertools.compress(zip(page.texts, translations, strict=True), page.tagged)


def _portions(pairs: list[Pair]) -> Iterator[list[Pair]]:
    """Distinct pairs in small portions, so that other requests get their turn."""
    some: list[Pair] = []
    size = 0
    for pair in dict.fromkeys(pairs):
        some.append(pair)
        size += len(pair[0]) + len(pair[1])
        if size > ALIGNED:
            yield some
            some, size = [], 0
    if some:
        yield some


# ---------------------------------------------------------------------------------------------------------------- XML


class XmlText:
    """XML with its translatable units: elements with text of their own, or the whole. Tags in a unit are codes."""

    def __init__(self, text: str, ignored: Collection[str] = ()) -> None:
        self._content = Content(f"<{ROOT}>{text}</{ROOT}>", "text")
        root = next(elements(self._content, ROOT, root={ROOT}))
        self._elements = [each for each in _units(self._content, root, ignored) if not each.empty]
        self.units = [inline(self._content, each, whole=lambda child: child.name in ignored) for each in self._elements]

    def translated(self, targets: Sequence[Inline]) -> str:
        """The XML with its units replaced by translations."""
        text, at, pieces = self._content.text, len(ROOT) + 2, list[str]()
        for element, target in zip(self._elements, targets, strict=True):
            pieces += text[at : element.inner], written(target, self._content, element)
            at = element.outer
        return "".join(pieces) + text[at : len(text) - len(ROOT) - 3]


def _units(content: Content, element: Element, ignored: Collection[str]) -> Iterator[Element]:
    """The elements to translate, each as one text. An element is structure, not text, if all that it holds is other
    elements, with nothing or line breaks between them."""
    children = [child for child in element.children if child.name not in ignored]
    bounds = [
        element.inner,
        *(place for child in element.children for place in (child.start, child.end)),
        element.outer,
    ]
    gaps = [content.text[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    if children and all(not gap or (gap.isspace() and "\n" in gap) for gap in gaps):
        for child in children:
            yield from _units(content, child, ignored)
    else:
        yield element


async def _translated_xml(
    server: Server, desk: Desk, texts: list[str], options: DecodingOptions, ignored: Collection[str]
) -> list[list[str]]:
    """The translation of each text."""
    try:
        every = await anyio.to_thread.run_sync(lambda: [XmlText(text, ignored) for text in texts])
    except DataError as error:  # in DeepL's words, and what is wrong
        raise HTTPException(400, f"{MALFORMED}: {str(error).partition(';')[0]}") from None
    server.checks.segments(sum(len(one.units) for one in every))
    found = iter(await server.translate(desk, [unit for one in every for unit in one.units], options))
    return [[one.translated([next(found).target for _ in one.units])] for one in every]
