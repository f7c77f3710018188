"""What routes depend on: the server's parts, access checks, and work that ends when the client leaves."""

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request

from knnmt.corpus import Segment
from knnmt.documents.formats import FORMATS
from knnmt.server.access import Doorkeeper
from knnmt.server.detection import Pair
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.glossaries import Glossaries
from knnmt.server.imports import Imports
from knnmt.server.metrics import Metrics
from knnmt.server.middleware import CLOSED
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool
from knnmt.server.worker import Worker
from knnmt.store.digests import one_line
from knnmt.store.memories import AnyStore
from knnmt.translate import Translator

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass
class Server:
    """A translator, the thread that runs it, and what guards it."""

    translator: Translator
    settings: ServerSettings
    pair: Pair
    worker: Worker
    doorkeeper: Doorkeeper
    metrics: Metrics
    imports: Imports
    documents: DocumentJobs
    spool: Spool
    glossaries: Glossaries

    @property
    def suffixes(self) -> list[str]:
        """The suffixes of documents that the server takes; none if it takes no files."""
        return [suffix for each in FORMATS for suffix in each.suffixes] if self.settings.max_file else []

    @property
    def learns(self) -> bool:
        """Whether clients may change the store."""
        return self.settings.teach and self.translator.store is not None

    def store(self) -> AnyStore:
        """The store; 404 if the server has none."""
        if self.translator.store is None:
            raise HTTPException(404, "this server has no memory: start it with --store")
        return self.translator.store

    def require_learning(self, request: Request) -> None:
        """Refuse changes to a read-only memory, and changes from pages of other origins."""
        if not self.learns:
            raise HTTPException(403, "Suggestions are disabled on this server.")
        self.check_origin(request, "teach")

    def check_origin(self, request: Request, what: str) -> None:
        """Refuse what a page of another origin could make a browser send without being allowed to (CSRF)."""
        origin = request.headers.get("origin")
        known = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
        if origin is not None and origin not in known and not {origin, "*"} & set(self.settings.cors):
            raise HTTPException(403, f"pages of other origins may not {what} this server (see --cors)")

    def verbatim(self, texts: list[str]) -> list[bool]:
        """Which texts the store has verbatim, and will be taken from it; for the model's thread."""
        retriever = self.translator.retriever
        if retriever is None or retriever.settings.weight == 0:
            return [False] * len(texts)
        return [bool(retriever.store.matches(one_line(text))) for text in texts]

    async def teach(self, segments: list[Segment]) -> list[str]:
        """Add segments: when this returns they are on disk, and the next translation uses them."""
        added = await self.worker.call(lambda: self.translator.add(segments))
        self.metrics.taught.inc(len(added.ids))
        return list(added.ids)

    def abandon(self) -> None:
        """Refuse all queued requests, and stop imports and documents."""
        self.imports.abandon()
        self.documents.abandon()
        self.worker.abandon()

    def stop(self) -> None:
        """Finish what can be finished in a few seconds, then stop."""
        self.imports.stop()
        self.documents.stop()
        self.worker.stop()
        self.spool.close()

    def check_size(self, texts: list[str]) -> None:
        """Refuse requests over the size limits, and texts that are not valid Unicode."""
        limits, characters = self.settings, sum(map(len, texts))
        if characters > limits.max_characters:
            raise HTTPException(400, _exceeds(characters, limits.max_characters, "characters"))
        self.check_segments(sum(text.count("\n") + 1 for text in texts))
        if any(_SURROGATE.search(text) for text in texts):
            raise HTTPException(400, "Invalid request: the text contains a lone surrogate")

    def check_segments(self, segments: int) -> None:
        """Refuse requests of too many segments: lines of text, or blocks of HTML."""
        if segments > self.settings.max_segments:
            raise HTTPException(400, _exceeds(segments, self.settings.max_segments, "segments"))


def _exceeds(size: int, limit: int, what: str) -> str:
    return f"Invalid request: request ({size}) exceeds text limit ({limit}) of {what}"


async def server_of(request: Request) -> Server:
    """The server of a request."""
    server: Server = request.app.state.server
    return server


async def admitted(request: Request) -> None:
    """Check the key in a request's headers."""
    (await server_of(request)).doorkeeper.admit(request)


async def known(request: Request) -> None:
    """Check the key in a request's headers, and do not count the request."""
    (await server_of(request)).doorkeeper.owner(request)


Serving = Annotated[Server, Depends(server_of)]


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Await work for a client, and cancel it if the client disconnects."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(CLOSED, "client closed request")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
