"""`/v1/review`: suggestions that wait for a reviewer, to be accepted, edited or rejected."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, HTTPException, Query, Request
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from knnmt.server.dependencies import Calling, Serving, admitted
from knnmt.server.teaching import DISABLED

router = APIRouter(prefix="/v1/review", tags=["Review"], dependencies=[Depends(admitted)])


class SuggestionOut(BaseModel):
    """A suggestion for a memory; `segment` is the id of the segment that it would replace, if it names one."""

    model_config = ConfigDict(from_attributes=True)

    id: str
    memory: str
    source: str
    target: str
    origin: str
    author: str
    date: str
    segment: str | None
    current: str | None = Field(default=None, description="translation that the memory has for this text now")


class SuggestionsOut(BaseModel):
    """A page of suggestions, the oldest first; `total` counts all that the caller may see."""

    total: int
    suggestions: list[SuggestionOut]


class Edited(BaseModel):
    """A suggestion as it is to be stored."""

    model_config = ConfigDict(extra="forbid")

    target: StrictStr | None = Field(default=None, min_length=1, description="another translation, if it is edited")


class Decided(BaseModel):
    """A decision, and the ids of segments that it changed."""

    decision: str
    ids: list[str]


@router.get("", response_model=SuggestionsOut)
async def listed(
    server: Serving,
    caller: Calling,
    offset: Annotated[int, Query(ge=0, le=1 << 40, description="suggestions to skip")] = 0,
    limit: Annotated[int, Query(ge=1, le=1000, description="maximum suggestions to return")] = 50,
) -> Any:
    """List the suggestions for memories that the caller reviews, and the caller's own."""
    waiting = [] if server.state is None else server.state.review.waiting(caller)
    shown = [SuggestionOut.model_validate(each) for each in waiting[offset : offset + limit]]
    for each in shown:
        if (memory := server.desks.memories.get(each.memory)) is not None:
            each.current = next((match.segment.target for match in memory.store.matches(each.source)), None)
    return {"total": len(waiting), "suggestions": shown}


@router.post("/{id}/accept", response_model=Decided)
async def accept(id: str, request: Request, server: Serving, caller: Calling, edited: Edited | None = None) -> Any:
    """Store a suggestion, as it is or edited. The next translation uses it."""
    server.checks.origin(request, "teach")
    _, found = server.teaching.suggestion(caller, id)
    if not caller.may("review", found.memory):
        raise HTTPException(403, f"not allowed: this key does not review {found.memory}")
    if not server.settings.teach:
        raise HTTPException(403, DISABLED)
    target = edited.target if edited is not None else None
    server.checks.size([found.source, target or found.target])
    ids = await server.teaching.accept(server.desk(caller, memories=[found.memory]), id, target)
    return {"decision": "accepted", "ids": ids}


@router.post("/{id}/reject", response_model=Decided)
async def reject(id: str, request: Request, server: Serving, caller: Calling) -> Any:
    """Drop a suggestion; who suggested it may do so too."""
    server.checks.origin(request, "teach")
    server.teaching.suggestion(caller, id)
    await server.teaching.reject(caller, id)
    return {"decision": "rejected", "ids": []}
