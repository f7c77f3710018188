"""The source language of a document that does not come with one: detected in its texts."""

import itertools
from collections.abc import Sequence

import anyio.to_thread
from fastapi import HTTPException

from knnmt.documents import open_document
from knnmt.documents.pretranslate import to_translate
from knnmt.errors import KnnmtError
from knnmt.languages import Languages, closeness
from knnmt.server.desks import Desk
from knnmt.server.detection import LOOKED_AT, foreign, ranked
from knnmt.server.document_jobs import HowToRead, plain_name
from knnmt.server.people import Caller
from knnmt.server.server import Server
from knnmt.server.uploads import Upload

UNITS = 200  # texts of a document that are read


async def desk_for(
    server: Server,
    caller: Caller,
    upload: Upload,
    how: HowToRead,
    source: str | None,
    target: str | None,
    memories: Sequence[str] | None = None,
) -> Desk:
    """The desk for a document, loaded. With `auto`, its language is that of its texts, among those that the server
    translates (to the target, if there is one); 400 if they are clearly in another."""
    desk = server.desk(caller, source, target, memories)
    if source == "auto":
        pairs = [pair for pair in server.pairs() if target is None or closeness(pair.target, target)]
        found = await anyio.to_thread.run_sync(_detect, upload, how, pairs)
        desk = server.desk(caller, found or source, target, memories)
    return await server.loaded(desk)


def _detect(upload: Upload, how: HowToRead, pairs: Sequence[Languages]) -> str | None:
    """The likeliest source language of a document; None if it has no text that can be read."""
    sources = list(dict.fromkeys(pair.source for pair in pairs))
    text = next((text for pair in pairs if (text := _sample(upload, how, pair))), "")
    if not text:
        return None
    if (other := foreign([text], {*sources, *(pair.target for pair in pairs)})) is not None:
        raise HTTPException(400, f"{other} is not supported")
    shares = {each.language: each.confidence for each in ranked(text, sources)}
    return max(sources, key=lambda tag: shares.get(tag, 0.0))


def _sample(upload: Upload, how: HowToRead, languages: Languages) -> str:
    """Some of the texts that would be translated; nothing where the document cannot be read in these languages."""
    name = plain_name(upload.name or "")
    try:
        document = open_document(
            upload.file.path.read_bytes(), how.format, languages=languages, columns=how.columns, name=name
        )  # fmt: skip
        units = itertools.islice(to_translate(document, everything=True), UNITS)
        return "\n".join(unit.source.text for unit in units)[:LOOKED_AT]
    except KnnmtError:
        return ""
