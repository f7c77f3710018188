"""What the routes of a server share."""

import asyncio
import re
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, TypeVar

from fastapi import Depends, HTTPException, Request

from knnmt.corpus import Segment
from knnmt.server.access import Doorkeeper
from knnmt.server.detection import Pair
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.worker import Worker
from knnmt.translate import Translator

if TYPE_CHECKING:
    from knnmt.server.jobs import Jobs
    from knnmt.store.store import Store

T = TypeVar("T")
_HALF = re.compile("[\ud800-\udfff]")


@dataclass
class Server:
    """A translator and all that stands around it."""

    translator: Translator
    settings: ServerSettings
    pair: Pair
    worker: Worker
    doorkeeper: Doorkeeper
    metrics: Metrics
    jobs: "Jobs"

    @property
    def learns(self) -> bool:
        """Whether clients may change the store."""
        return self.settings.teach and self.translator.store is not None

    def store(self) -> "Store":
        """The store, if there is one to speak of."""
        if self.translator.store is None:
            raise HTTPException(404, "this server has no memory: start it with a store (--store)")
        return self.translator.store

    def require_learning(self, request: Request) -> None:
        """Refuse to change what may not be changed, and changes that a page from elsewhere asks a browser for."""
        if not self.learns:
            raise HTTPException(403, "Suggestions are disabled on this server.")
        origin = request.headers.get("origin")
        known = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
        if origin is not None and origin not in known and not {origin, "*"} & set(self.settings.cors):
            raise HTTPException(403, "pages of other origins may not teach this server (see --cors)")

    async def teach(self, segments: list[Segment]) -> list[str]:
        """Add segments: durable, and used by the next translation, when this returns."""
        added = await self.worker.call(lambda: self.translator.add(segments))
        self.metrics.taught.inc(len(added.ids))
        return list(added.ids)

    def abandon(self) -> None:
        """Finish nothing more: who waits is told so, and imports end where they are."""
        self.jobs.abandon()
        self.worker.abandon()

    def stop(self) -> None:
        """Finish what can be finished in a few seconds, and end."""
        self.jobs.stop()
        self.worker.stop()

    def check_size(self, texts: list[str]) -> None:
        """Refuse more than a request may hold, and what is no text."""
        limits, characters = self.settings, sum(map(len, texts))
        if characters > limits.max_characters:
            raise HTTPException(400, _exceeds(characters, limits.max_characters, "characters"))
        segments = sum(text.count("\n") + 1 for text in texts)
        if segments > limits.max_segments:
            raise HTTPException(400, _exceeds(segments, limits.max_segments, "segments"))
        if any(_HALF.search(text) for text in texts):
            raise HTTPException(400, "Invalid request: half a character (a lone surrogate) is no text")


def _exceeds(size: int, limit: int, what: str) -> str:
    return f"Invalid request: request ({size}) exceeds text limit ({limit}) of {what}"


async def server_of(request: Request) -> Server:
    """The server that a request came to."""
    server: Server = request.app.state.server
    return server


async def admitted(request: Request) -> None:
    """Check the key in a request's headers."""
    (await server_of(request)).doorkeeper.admit(request)


Serving = Annotated[Server, Depends(server_of)]


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Do something for a client as long as it is there: nobody waits for the translation of one that left."""
    doing, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait((doing, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not doing.done():
            raise HTTPException(499, "the client has left")
        return doing.result()
    finally:
        doing.cancel()
        leaving.cancel()


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
