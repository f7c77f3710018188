"""What routes depend on: the server's parts, access checks, and work that ends when the client leaves."""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import Depends, HTTPException, Request

from knnmt.corpus import Segment
from knnmt.documents.formats import FORMATS
from knnmt.languages import Languages
from knnmt.server.access import Doorkeeper
from knnmt.server.desks import Desk, Desks, Memory
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.imports import Imports
from knnmt.server.metrics import Metrics
from knnmt.server.middleware import CLOSED
from knnmt.server.people import Caller
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool
from knnmt.server.work_items import DecodingOptions
from knnmt.server.worker import Worker
from knnmt.store.digests import one_line
from knnmt.translate import Translation

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


NO_MEMORY = "this server has no memory: start it with --store"
DISABLED = "Suggestions are disabled on this server."  # LibreTranslate's words


@dataclass(frozen=True)
class Taught:
    """What became of lessons: the ids of segments that were stored, or of suggestions that wait for a reviewer."""

    ids: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()


@dataclass
class Server:
    """Desks, the thread that runs their models, and what guards them."""

    desks: Desks
    settings: ServerSettings
    worker: Worker
    doorkeeper: Doorkeeper
    metrics: Metrics
    imports: Imports
    documents: DocumentJobs
    spool: Spool

    # ---------------------------------------------------------------------------------------------- who, and what with

    def caller(self, request: Request, key: str | None = None) -> Caller:
        """Who calls, by the key given or in the headers: 403 without a valid one, 429 beyond the rate limit."""
        return self.doorkeeper.admit(request, key)

    def desk(
        self,
        caller: Caller,
        source: str | None = None,
        target: str | None = None,
        memories: Sequence[str] | None = None,
    ) -> Desk:
        """The desk of a pair, with the caller's default memories or those named, the most specific first.

        Without languages it is that of the memories' languages, else the first pair; `auto` is any source. 400 for an
        unknown pair, 404 for a memory that does not exist or that the caller may not use.
        """
        return self.desks.desk(caller, source, target, memories)

    def pairs(self, caller: Caller | None = None) -> list[Languages]:
        """The pairs of languages that a caller, or anyone, may translate."""
        return self.desks.pairs()

    async def loaded(self, desk: Desk) -> Desk:
        """The desk, after its model is loaded."""
        await anyio.to_thread.run_sync(lambda: desk.translator)
        return desk

    async def translate(self, desk: Desk, texts: Sequence[str], options: DecodingOptions) -> list[Translation]:
        """Translate texts, batched with those of other requests. TimeoutError after the time limit."""
        return await self.worker.translate(desk.translator, texts, options)

    # ------------------------------------------------------------------------------------------------------- teaching

    def may_teach(self, desk: Desk) -> bool:
        """Whether the caller's lessons are stored at once."""
        return self.settings.teach and desk.learning is not None and desk.caller.may("teach", desk.learning)

    def accepts_lessons(self, desk: Desk) -> bool:
        """Whether the caller's lessons are taken, to be stored at once or to be reviewed."""
        return self.may_teach(desk)

    def learning(self, request: Request, desk: Desk) -> Memory:
        """The memory that a caller may change: 403 if there is none, and for pages of other origins."""
        if not desk.memories:
            raise HTTPException(404, NO_MEMORY)
        if desk.learning is None or not self.may_teach(desk):
            raise HTTPException(403, DISABLED)
        self.check_origin(request, "teach")
        return self.desks.memories[desk.learning]

    async def teach(self, caller: Caller, desk: Desk, segments: Sequence[Segment]) -> Taught:
        """Add segments to the desk's learning memory: when this returns they are on disk, and the next translation
        uses them. 403 if the caller may neither teach nor suggest."""
        if not self.may_teach(desk) or desk.learning is None:
            raise HTTPException(403, DISABLED)
        memory, model = self.desks.memories[desk.learning], desk.translator.model
        added = await self.worker.call(lambda: memory.store.add(segments, model))
        self.metrics.taught.inc(len(added.ids))
        return Taught(added.ids)

    def memories(self, desk: Desk) -> list[Memory]:
        """The memories of a desk, the most specific first."""
        return [self.desks.memories[name] for name in desk.memories]

    async def current(self, desk: Desk) -> list[Memory]:
        """The memories of a desk, with what other processes wrote to them; 404 if it has none."""
        if not desk.memories:
            raise HTTPException(404, NO_MEMORY)
        found = self.memories(desk)

        def refresh() -> None:
            for memory in found:
                memory.store.refresh()

        await self.worker.call_soon(refresh)
        return found

    @property
    def suffixes(self) -> list[str]:
        """The suffixes of documents that the server takes; none if it takes no files."""
        return [suffix for each in FORMATS for suffix in each.suffixes] if self.settings.max_file else []

    def check_origin(self, request: Request, what: str) -> None:
        """Refuse what a page of another origin could make a browser send without being allowed to (CSRF)."""
        origin = request.headers.get("origin")
        known = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
        if origin is not None and origin not in known and not {origin, "*"} & set(self.settings.cors):
            raise HTTPException(403, f"pages of other origins may not {what} this server (see --cors)")

    def verbatim(self, desk: Desk, texts: list[str]) -> list[bool]:
        """Which texts the memories have verbatim, and will be taken from them; for the model's thread."""
        retriever = desk.translator.retriever
        if retriever is None or retriever.settings.weight == 0:
            return [False] * len(texts)
        return [bool(retriever.store.matches(one_line(text))) for text in texts]

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


async def admitted(request: Request) -> Caller:
    """Who calls, by the key in the headers."""
    return (await server_of(request)).caller(request)


async def known(request: Request) -> Caller:
    """Who calls, by the key in the headers; the request is not counted."""
    return (await server_of(request)).doorkeeper.recognise(request)


Serving = Annotated[Server, Depends(server_of)]
Calling = Annotated[Caller, Depends(admitted)]
Recognised = Annotated[Caller, Depends(known)]


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
