"""Texts of a request: their languages, given or detected, and their translations. All text interfaces use this."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import anyio.to_thread
from fastapi import HTTPException

from knnmt.languages import closeness
from knnmt.server.desks import Desk
from knnmt.server.detection import Detected, detected, foreign
from knnmt.server.markup import Kind, translations
from knnmt.server.people import Caller
from knnmt.server.server import Server
from knnmt.server.work_items import DecodingOptions


@dataclass(frozen=True)
class TextQuery:
    """What a client asks for. source: a language code, None to detect it; ignored: elements of XML to keep as they
    are."""

    texts: list[str]
    source: str | None
    target: str
    kind: Kind = "text"
    ignored: Collection[str] = ()


@dataclass(frozen=True)
class Rendered:
    """A text: its language, and its translations, best first; itself, if it is in the target language already."""

    source: Detected
    translations: list[str]


async def render(
    server: Server, caller: Caller, query: TextQuery, options: Callable[[Desk], DecodingOptions]
) -> list[Rendered]:
    """Translate texts; 400 for languages that the server does not translate."""
    server.checks.size(query.texts)
    desk = server.desk(caller, query.source or "auto", query.target)
    if query.source is not None:
        found = [Detected(desk.languages.source, 1.0)] * len(query.texts)
    else:
        found = await anyio.to_thread.run_sync(_detect, server, query, desk.languages.target)
    rendered = [Rendered(source, [text]) for source, text in zip(found, query.texts, strict=True)]
    for source in dict.fromkeys(each.language for each in found if each.language != desk.languages.target):
        numbers = [number for number, each in enumerate(found) if each.language == source]
        if source != desk.languages.source:
            desk = server.desk(caller, source, query.target)
        desk = await server.loaded(desk)
        some = [query.texts[number] for number in numbers]
        done = await translations(server, desk, some, query.kind, options(desk), query.ignored)
        for number, each in zip(numbers, done, strict=True):
            rendered[number] = Rendered(found[number], each)
    return rendered


def _detect(server: Server, query: TextQuery, target: str) -> list[Detected]:
    """The language of each text, among those that can be translated to the target; 400 if it is clearly another."""
    sources = [pair.source for pair in server.pairs() if closeness(pair.target, query.target)]
    if (other := foreign(query.texts, {*sources, target})) is not None:
        raise HTTPException(400, f"{other} is not supported")
    return [detected(text, sources, target) for text in query.texts]
