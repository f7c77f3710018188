"""What routes depend on: the server's parts, access checks, and work that ends when the client leaves."""

import asyncio
import re
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, TypeVar

import anyio.to_thread
from fastapi import Depends, HTTPException, Request

from knnmt.corpus import Segment
from knnmt.corpus.signature import signed
from knnmt.documents.formats import FORMATS
from knnmt.errors import KnnmtError, UsageError
from knnmt.languages import Languages
from knnmt.server.access import Doorkeeper, read_keys
from knnmt.server.audit import Action
from knnmt.server.config import keys_of, read_config
from knnmt.server.desks import Desk, Desks, Memory
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.imports import Imports
from knnmt.server.metrics import Metrics
from knnmt.server.middleware import CLOSED
from knnmt.server.model_pool import ModelPool
from knnmt.server.opening import TranslatorKey, open_desks
from knnmt.server.people import Caller, Key, includes
from knnmt.server.review import Suggestion
from knnmt.server.rights import needed
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool
from knnmt.server.state import State
from knnmt.server.work_items import DecodingOptions, UnavailableError
from knnmt.server.worker import Worker
from knnmt.store.digests import one_line
from knnmt.text.inline import Inline
from knnmt.translate import Translation

T = TypeVar("T")
_SURROGATE = re.compile("[\ud800-\udfff]")


NO_MEMORY = "there is no memory for these languages"
DISABLED = "Suggestions are disabled on this server."  # LibreTranslate's words


@dataclass(frozen=True)
class Taught:
    """What became of lessons: the ids of segments that were stored, or of suggestions that wait for a reviewer."""

    ids: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()


@dataclass(frozen=True)
class Reloaded:
    """What a reload changes; `restart` are settings that only a restart changes."""

    desks: Desks
    keys: Sequence[Key]
    suggestions: bool
    budget: int | None = None
    restart: list[str] = field(default_factory=list)


@dataclass
class Server:
    """Desks, the thread that runs their models, and what guards them.

    state: review queue and audit log, if it keeps any; pool: the models, where it loads them itself; config: the file
    that it was configured by
    """

    desks: Desks
    settings: ServerSettings
    worker: Worker
    doorkeeper: Doorkeeper
    metrics: Metrics
    imports: Imports
    documents: DocumentJobs
    spool: Spool
    state: State | None = None
    pool: ModelPool | None = None
    config: Path | None = None
    suggestions: bool = True
    configured: ServerSettings = field(default_factory=ServerSettings)  # as in the file, which options may override
    _reloading: asyncio.Lock = field(default_factory=asyncio.Lock)

    # ---------------------------------------------------------------------------------------------- who, and what with

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

        Without languages it is that of the memories' languages, else the first pair; `auto` is any source. 400 for an
        unknown pair, 404 for a memory that does not exist or that the caller may not use.
        """
        return self.desks.desk(caller, source, target, memories)

    def pairs(self) -> list[Languages]:
        """The pairs of languages, which are the same for everybody."""
        return self.desks.pairs()

    async def loaded(self, desk: Desk) -> Desk:
        """The desk, after its model is loaded; 503 if that takes longer than a request may take."""
        if not desk.loaded:
            try:
                load = anyio.to_thread.run_sync(lambda: desk.translator, abandon_on_cancel=True)
                await asyncio.wait_for(load, self.settings.time_limit)
            except TimeoutError:
                raise UnavailableError(f"the model for {desk.languages} is being loaded: try again later", 5) from None
        return desk

    async def translate(self, desk: Desk, texts: Sequence[str | Inline], options: DecodingOptions) -> list[Translation]:
        """Translate texts, batched with those of other requests. TimeoutError after the time limit."""
        size = sum(len(text if isinstance(text, str) else text.text) for text in texts)
        self.doorkeeper.count_characters(desk.caller, size)
        return await self.worker.translate((await self.loaded(desk)).translator, texts, options)

    def trouble(self) -> str | None:
        """Why the server is not ready; None if it is."""
        loading = self.pool.stuck if self.pool is not None else None
        return self.worker.trouble or loading

    async def reload(self, caller: Caller) -> list[str]:
        """Read configuration and keys again, all or nothing; requests in flight finish with the old ones.

        Gives the names of settings that are new but need a restart. UsageError if something is wrong with the new ones.
        """
        if self._reloading.locked():
            raise UnavailableError("the configuration is being reloaded: try again later", 2)
        async with self._reloading:
            new = await anyio.to_thread.run_sync(self._read_again)
            self.desks, self.suggestions = new.desks, new.suggestions
            self.doorkeeper.replace(new.keys)
            if self.pool is not None:
                self.pool.budget = new.budget
                opened = set(new.desks.memories.values())
                self.pool.keep(lambda key: not isinstance(key, TranslatorKey) or key.uses_only(opened))
            await anyio.to_thread.run_sync(self.record, caller, "reload")
        return new.restart

    def _read_again(self) -> "Reloaded":
        if self.config is None or self.pool is None:
            keys = read_keys(self.settings.keys) if self.settings.keys is not None else []
            return Reloaded(self.desks, keys, self.suggestions)
        config = read_config(self.config)
        keys = keys_of(config, self.settings.keys)
        if bool(keys) != self.doorkeeper.needs_key:
            raise UsageError(f"{self.config}: to {'require' if keys else 'remove all'} keys, restart the server")
        try:
            desks = open_desks(config, self.pool, self.desks)
        except KnnmtError as error:
            raise UsageError(f"{self.config}: {error}") from None
        fields = ServerSettings.model_fields
        given = {name for name in fields if getattr(config.server, name) != getattr(self.configured, name)}
        return Reloaded(desks, keys, config.suggestions, config.memory, sorted(given))

    # ------------------------------------------------------------------------------------------------------- teaching

    def may_teach(self, desk: Desk) -> bool:
        """Whether the caller's lessons are stored at once."""
        learning = desk.learning
        return self.settings.teach and learning is not None and desk.caller.may("teach", learning.name)

    def accepts_lessons(self, desk: Desk) -> bool:
        """Whether the caller's lessons are taken, to be stored at once or to be reviewed."""
        reviewed = self.suggestions and self.state is not None and desk.learning is not None
        return self.may_teach(desk) or (self.settings.teach and reviewed)

    def require_lessons(self, request: Request, desk: Desk) -> None:
        """404 if a desk has no memory; 403 if it takes no lessons of the caller, and for pages of other origins."""
        if not desk.opened:
            raise HTTPException(404, NO_MEMORY)
        if not self.accepts_lessons(desk):
            raise HTTPException(403, DISABLED)
        self.check_origin(request, "teach")

    def learning(self, request: Request, desk: Desk) -> Memory:
        """The memory that a caller may change at once."""
        self.require_lessons(request, desk)
        if desk.learning is None or not self.may_teach(desk):
            raise HTTPException(403, "this key may suggest translations, but not change the memory")
        return desk.learning

    async def teach(self, caller: Caller, desk: Desk, segments: Sequence[Segment]) -> Taught:
        """Add segments to the desk's learning memory: when this returns they are on disk, and the next translation
        uses them. Those of a caller who may not teach are queued for review; 403 if that is not possible either."""
        if not self.accepts_lessons(desk) or desk.learning is None:
            raise HTTPException(403, DISABLED)
        segments = [line for segment in segments for line in _lines(segment)]
        if not self.may_teach(desk):
            return await self._suggest(caller, desk.learning, segments)
        memory, model = desk.learning, (await self.loaded(desk)).translator.model

        def add() -> tuple[str, ...]:
            ids = memory.store.add([signed(segment, caller.name) for segment in segments], model).ids
            self.record(caller, "teach", memory, ids)
            return ids

        ids = await self.worker.call(add)
        self.metrics.taught.inc(len(ids))
        return Taught(ids)

    async def _suggest(self, caller: Caller, memory: Memory, segments: Sequence[Segment]) -> Taught:
        assert self.state is not None
        suggestions = [
            Suggestion(memory.name, each.source, each.target, each.origin, caller.name, each.id) for each in segments
        ]
        queue = self.state.review

        def suggest() -> tuple[str, ...]:
            ids = queue.suggest(suggestions)
            self.record(caller, "suggest", memory, ids)
            return tuple(ids)

        return Taught(queued=await anyio.to_thread.run_sync(suggest))

    async def remove(self, caller: Caller, memory: Memory, ids: Sequence[str]) -> list[str]:
        """Remove segments of a memory; gives the ids that were there."""

        def remove() -> list[str]:
            gone = memory.store.remove(ids)
            if gone:
                self.record(caller, "remove", memory, gone)
            return gone

        return await self.worker.call(remove)

    def record(self, caller: Caller, action: Action, memory: Memory | None = None, ids: Sequence[str] = ()) -> None:
        """Write to the audit log, if there is one."""
        if self.state is not None:
            self.state.audit.append(caller.name, action, memory.name if memory else None, ids)

    async def current(self, desk: Desk) -> tuple[Memory, ...]:
        """The memories of a desk, with what other processes wrote to them; 404 if it has none."""
        if not desk.opened:
            raise HTTPException(404, NO_MEMORY)

        def refresh() -> None:
            for memory in desk.opened:
                memory.store.refresh()

        await self.worker.call_soon(refresh)
        return desk.opened

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
        if self.state is not None:
            self.state.close()

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


def _allowed(request: Request, caller: Caller) -> Caller:
    """The caller, if they have the role that the route needs."""
    role = needed(request)
    if role != "open" and not includes(caller.role, role):
        raise HTTPException(403, f"not allowed: this needs the role {role}, and the key has {caller.role}")
    return caller


def _lines(segment: Segment) -> list[Segment]:
    """A lesson as texts are translated, line by line; as one if it has an id, or lines that are not each other's."""
    lines = [[line.strip() for line in text.splitlines() if line.strip()] for text in (segment.source, segment.target)]
    if segment.id is not None or len(lines[0]) != len(lines[1]) or len(lines[0]) < 2:
        return [segment]
    return [replace(segment, source=source, target=target) for source, target in zip(*lines, strict=True)]


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
    return (await server_of(request)).recognise(request)


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
