"""The server behind the routes: desks, the thread that runs their models, and what guards, teaches and keeps them."""

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import HTTPException, Request

from knnmt.documents.formats import FORMATS
from knnmt.languages import Languages
from knnmt.server.access import Doorkeeper
from knnmt.server.checks import RequestChecks
from knnmt.server.desks import Desk, Desks, Memory, loaded
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.imports import Imports
from knnmt.server.metrics import Metrics
from knnmt.server.model_pool import ModelPool
from knnmt.server.people import Caller, includes
from knnmt.server.rights import needed
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool
from knnmt.server.state import State
from knnmt.server.teaching import NO_MEMORY, Teaching
from knnmt.server.work_items import DecodingOptions
from knnmt.server.worker import Worker
from knnmt.store.digests import one_line
from knnmt.text.inline import Inline
from knnmt.translate import Translation


@dataclass
class Server:
    """The parts of a server.

    state: review queue and audit log, if it keeps any; pool: the models, where it loads them itself
    """

    desks: Desks
    settings: ServerSettings
    worker: Worker
    doorkeeper: Doorkeeper
    metrics: Metrics
    imports: Imports
    documents: DocumentJobs
    spool: Spool
    checks: RequestChecks
    teaching: Teaching
    state: State | None = None
    pool: ModelPool | None = None

    def caller(self, request: Request, key: str | None = None) -> Caller:
        """Who calls, by the key given or in the headers: 403 without a valid one, or without the role that the route
        needs; 429 beyond the rate limit."""
        return _allowed(request, self.doorkeeper.admit(request, key))

    def recognise(self, request: Request) -> Caller:
        """Who calls, by the key in the headers; the request does not count towards the rate limit."""
        return _allowed(request, self.doorkeeper.recognise(request))

    def desk(
        self,
        caller: Caller,
        source: str | None = None,
        target: str | None = None,
        memories: Sequence[str] | None = None,
    ) -> Desk:
        """The desk of a pair, with the caller's default memories or those named, the most specific first.

        Without languages it is that of the memories' languages, else the first pair; `auto` is any source. NoPairError
        for an unknown pair, 404 for a memory that does not exist or that the caller may not use.
        """
        return self.desks.desk(caller, source, target, memories)

    def pairs(self) -> list[Languages]:
        """The pairs of languages, which are the same for everybody."""
        return self.desks.pairs()

    async def loaded(self, desk: Desk) -> Desk:
        """The desk, after its model is loaded; 503 if that takes longer than a request may take."""
        return await loaded(desk, self.settings.time_limit)

    async def translate(self, desk: Desk, texts: Sequence[str | Inline], options: DecodingOptions) -> list[Translation]:
        """Translate texts, batched with those of other requests. TimeoutError after the time limit."""
        size = sum(len(text if isinstance(text, str) else text.text) for text in texts)
        self.doorkeeper.count_characters(desk.caller, size)
        return await self.worker.translate((await self.loaded(desk)).translator, texts, options)

    async def current(self, desk: Desk) -> tuple[Memory, ...]:
        """The memories of a desk, with what other processes wrote to them; 404 if it has none."""
        if not desk.opened:
            raise HTTPException(404, NO_MEMORY)

        def refresh() -> None:
            for memory in desk.opened:
                memory.store.refresh()

        await self.worker.call_soon(refresh)
        return desk.opened

    def verbatim(self, desk: Desk, texts: list[str]) -> list[bool]:
        """Which texts the memories have verbatim, and will be taken from them; for the model's thread."""
        retriever = desk.translator.retriever
        if retriever is None or retriever.settings.weight == 0:
            return [False] * len(texts)
        return [bool(retriever.store.matches(one_line(text))) for text in texts]

    @property
    def suffixes(self) -> list[str]:
        """The suffixes of documents that the server takes; none if it takes no files."""
        return [suffix for each in FORMATS for suffix in each.suffixes] if self.settings.max_file else []

    def trouble(self) -> str | None:
        """Why the server is not ready; None if it is."""
        loading = self.pool.stuck if self.pool is not None else None
        return self.worker.trouble or loading

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
        if self.state is not None:
            self.state.close()


def _allowed(request: Request, caller: Caller) -> Caller:
    """The caller, if they have the role that the route needs."""
    role = needed(request)
    if role != "open" and not includes(caller.role, role):
        raise HTTPException(403, f"not allowed: this needs the role {role}, and the key has {caller.role}")
    return caller
