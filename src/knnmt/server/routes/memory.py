"""`/v1/memory`: list, search, add, change, delete, import and export the segments of the store."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, ConfigDict, Field, StrictStr
from starlette.convertors import Convertor, register_url_convertor

from knnmt.corpus import Segment
from knnmt.corpus.signature import signature
from knnmt.corpus.writers import Kind, pieces
from knnmt.server.dependencies import Calling, Recognised, Serving, admitted, known
from knnmt.server.desks import Memory
from knnmt.server.fields import WRITTEN, JsonBody, form_with_file
from knnmt.server.imports import MAX_ID, SUFFIX, ImportStatus
from knnmt.server.people import Caller
from knnmt.server.server import Server
from knnmt.server.state import record
from knnmt.server.teaching import Taught
from knnmt.server.uploads import received


class _SegmentId(Convertor[str]):
    """An id in a path: any characters, also line feeds."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("segment", _SegmentId())
router = APIRouter(prefix="/v1", tags=["Memory"], dependencies=[Depends(admitted)])
jobs = APIRouter(prefix="/v1/jobs", tags=["Memory"], dependencies=[Depends(known)])
T = TypeVar("T")

MEDIA = {"tmx": "application/x-tmx+xml", "tsv": "text/tab-separated-values", "jsonl": "application/jsonl"}
Named = Annotated[list[str] | None, Query(description="name of a memory, repeatable; default: the caller's")]
FARTHEST = 1 << 40  # segment to begin with
_scans = anyio.CapacityLimiter(2)  # concurrent scans of the store: they share the CPU with the model


class Pair(BaseModel):
    """A text and its translation."""

    model_config = ConfigDict(extra="forbid")

    source: StrictStr = Field(min_length=1, pattern=WRITTEN, description="source text")
    target: StrictStr = Field(min_length=1, pattern=WRITTEN, description="its translation")


class NewSegment(Pair):
    """A segment to add. It replaces the one with the same id or, without an id, the one taught for the same source."""

    id: StrictStr | None = Field(default=None, min_length=1, max_length=MAX_ID, description="replaces its segment")
    origin: StrictStr = Field(default="", max_length=1000, description="where it comes from, for evidence")


class SegmentOut(BaseModel):
    """A segment; `memory` is the name of its store, of which the last one learns."""

    id: str
    source: str
    target: str
    origin: str
    memory: str
    author: str | None = Field(default=None, description="who taught it")
    date: str | None = Field(default=None, description="when, in UTC")


class Listed(BaseModel):
    """A page of segments; `total` counts the whole memory, or the matches found so far."""

    total: int
    more: bool
    segments: list[SegmentOut]


class Sought(JsonBody):
    """Which segments to list."""

    q: str = Field(default="", max_length=1000, description="only segments that contain this, in source or target")
    memory: list[str] | None = Field(default=None, description="names of memories; default: the caller's")
    offset: int = Field(default=0, ge=0, le=FARTHEST, description="segments to skip")
    limit: int = Field(default=50, ge=1, le=1000, description="maximum segments to return")
    order: Literal["stored", "recent"] = Field(default="stored", description="as stored, or latest lesson first")


class Ids(BaseModel):
    """Ids of segments that were changed, or of suggestions that wait for a reviewer (`queued`)."""

    ids: list[str]
    queued: list[str] = []


@router.get("/memory", response_model=Listed)
async def listed(
    server: Serving,
    caller: Calling,
    memory: Named = None,
    offset: Annotated[int, Query(ge=0, le=FARTHEST, description="segments to skip")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="maximum segments to return")] = 50,
    q: Annotated[str, Query(max_length=1000, description="only segments that contain this, in source or target")] = "",
    order: Annotated[Literal["stored", "recent"], Query(description="as stored, or latest lesson first")] = "stored",
) -> Any:
    """List or search segments. An address ends up in logs: search by `POST /v1/memory/search` instead."""
    return await _listed(server, caller, Sought(memory=memory, offset=offset, limit=limit, q=q, order=order))


@router.post("/memory/search", response_model=Listed)
async def searched(asked: Sought, server: Serving, caller: Calling) -> Any:
    """List or search segments, with the text in the body."""
    return await _listed(server, caller, asked)


async def _listed(server: Server, caller: Caller, asked: Sought) -> dict[str, Any]:
    memories = await server.current(server.desk(caller, memories=asked.memory))
    sought, recent, offset, limit = asked.q.casefold(), asked.order == "recent", asked.offset, asked.limit

    def read() -> dict[str, Any]:
        every = _segments(memories, recent=recent)
        total = sum(len(one.store.lessons.taught) if recent else len(one.store) for one in memories)
        if sought:
            every = (
                each for each in every if sought in each[1].source.casefold() or sought in each[1].target.casefold()
            )
        found = list(itertools.islice(every, offset, offset + limit + 1))
        total = min(offset, total) + len(found) if sought else total
        return {"total": total, "more": len(found) > limit, "segments": [_shown(*each) for each in found[:limit]]}

    return await _scan(read)


@router.post("/memory", response_model=Ids, response_model_exclude_unset=True, status_code=201)
async def added(
    asked: NewSegment | list[NewSegment], request: Request, server: Serving, caller: Calling, memory: Named = None
) -> Any:
    """Add a segment or a list of segments, all or none. The next translation uses them."""
    desk = server.desk(caller, memories=memory)
    server.teaching.require(desk)
    server.checks.origin(request, "teach")
    every = asked if isinstance(asked, list) else [asked]
    server.checks.size([text for each in every for text in (each.source, each.target)])
    segments = [Segment(each.source, each.target, each.origin or "added", each.id) for each in every]
    return _shown_ids(await server.teaching.teach(desk, segments))


@router.put("/memory/{id:segment}", response_model=Ids, response_model_exclude_unset=True)
async def changed(
    id: str, asked: Pair, request: Request, server: Serving, caller: Calling, memory: Named = None
) -> Any:
    """Replace a segment; the replacement of a segment of another memory is added to the one that learns."""
    desk = server.desk(caller, memories=memory)
    server.teaching.require(desk)
    server.checks.origin(request, "teach")
    server.checks.size([asked.source, asked.target])
    old = _found(await server.current(desk), id)
    segment = Segment(asked.source, asked.target, old.origin, id)
    return _shown_ids(await server.teaching.teach(desk, [segment]))


@router.delete("/memory/{id:segment}", response_model=Ids, response_model_exclude_unset=True)
async def removed(id: str, request: Request, server: Serving, caller: Calling, memory: Named = None) -> Any:
    """Delete a segment of the memory that learns."""
    desk = server.desk(caller, memories=memory)
    learning = server.teaching.learning(desk)
    server.checks.origin(request, "teach")
    ids = await server.teaching.remove(caller, learning, [id])
    if not ids:
        _found(await server.current(desk), id)
        raise HTTPException(403, f"only {learning.name} learns here, and {id!r} is in another memory")
    return {"ids": ids}


def _shown_ids(taught: Taught) -> dict[str, Any]:
    return {"ids": taught.ids} | ({"queued": taught.queued} if taught.queued else {})


def _found(memories: Sequence[Memory], id: str) -> Segment:
    """The segment of an id, in the most specific memory that has it; 404 if none has."""
    for memory in memories:
        if (found := memory.store.find(id)) is not None:
            return found
    raise HTTPException(404, f"no such segment: {id!r}")


TMX = (
    '<tmx version="1.4"><header srclang="de" datatype="plaintext" segtype="sentence" adminlang="en" o-tmf="none"'
    ' creationtool="none" creationtoolversion="1"/><body><tu><tuv xml:lang="de"><seg>Guten Morgen!</seg></tuv>'
    '<tuv xml:lang="en"><seg>Good morning!</seg></tuv></tu></body></tmx>'
)
IMPORT_BODY = {
    "requestBody": {
        "required": True,
        "content": {
            "application/xml": {"schema": {"type": "string", "description": "a TMX file"}},
            **form_with_file({"type": "object", "properties": {}, "required": ["file"]}, "memory.tmx", TMX),
        },
    }
}


@router.post("/memory/import", response_model=ImportStatus, status_code=202, openapi_extra=IMPORT_BODY)
async def imported(
    request: Request,
    server: Serving,
    caller: Calling,
    memory: Named = None,
    clean: Annotated[bool, Query(description="drop bad pairs: wrong language, length ratio")] = True,
) -> Any:
    """Import a TMX file in the background; follow the job under `/v1/jobs`. A corrupt file is refused."""
    desk = server.desk(caller, memories=memory)
    learning = server.teaching.learning(desk)
    server.checks.origin(request, "teach")
    server.imports.check_queue(caller)
    async with received(request, server.spool, server.settings.max_import, SUFFIX) as upload:
        job = await server.imports.queue(upload, await server.loaded(desk), learning, clean=clean)
    await anyio.to_thread.run_sync(record, server.state, caller, "import", learning.name, [job.id])
    return job


@router.get("/memory/export", response_class=StreamingResponse)
async def exported(
    server: Serving, caller: Calling, memory: Named = None, format: Annotated[Kind, Query()] = "tmx"
) -> StreamingResponse:
    """Export memories of one pair."""
    desk = server.desk(caller, memories=memory)
    memories = await server.current(desk)
    for each in memories:
        await anyio.to_thread.run_sync(record, server.state, caller, "export", each.name)
    headers = {"Content-Disposition": f'attachment; filename="memory.{format}"'}
    content = pieces((segment for _, segment in _segments(memories, recent=False)), format, desk.languages)
    return StreamingResponse(content, media_type=MEDIA[format], headers=headers)


@jobs.get("/{id}", response_model=ImportStatus)
async def job(id: str, server: Serving, caller: Recognised) -> Any:
    """Report the progress of an import."""
    return server.imports.status(id, caller)


async def _scan(read: Callable[[], T]) -> T:
    """Read the store in a thread, to keep the event loop free."""
    return await anyio.to_thread.run_sync(read, limiter=_scans)


def _segments(memories: Sequence[Memory], *, recent: bool) -> Iterator[tuple[str, Segment]]:
    """All segments with the names of their memories, as stored, the most specific memory last; or what was taught,
    the latest lesson first, those of the most specific memory before all others."""
    for memory in memories if recent else reversed(memories):
        segments = memory.store.recent() if recent else memory.store.segments()
        yield from ((memory.name, segment) for segment in segments)


def _shown(memory: str, segment: Segment) -> dict[str, Any]:
    named, taught = {"id": segment.id or "", "memory": memory}, signature(segment.origin)
    texts = {"source": segment.source, "target": segment.target, "origin": segment.origin}
    return named | texts | {"author": taught.author, "date": taught.date}
