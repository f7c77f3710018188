"""`/v1/audit` and `/v1/reload`: for administrators."""

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Request
from pydantic import BaseModel, Field

from knnmt.server.dependencies import Calling, Serving
from knnmt.server.reloading import Reloader

router = APIRouter(prefix="/v1", tags=["Administration"])


class Entry(BaseModel):
    """An entry of the audit log; `ids` are those of segments, suggestions or imports."""

    time: str
    caller: str
    action: str
    memory: str | None
    ids: list[str]


class Entries(BaseModel):
    """The latest entries, the newest first."""

    entries: list[Entry]


class ReloadedOut(BaseModel):
    """The outcome of a reload."""

    pairs: list[str]
    memories: list[str]
    keys: int = Field(description="number of keys")
    restart: list[str] = Field(description="settings of the file that need a restart")


@router.get("/audit", response_model=Entries)
async def audit(
    server: Serving,
    caller: Calling,
    limit: Annotated[int, Query(ge=1, le=1000, description="maximum entries to return")] = 100,
) -> Any:
    """List the latest entries of the audit log."""
    if server.state is None:
        raise HTTPException(404, "this server keeps no audit log: start it with --state")
    return {"entries": server.state.audit.latest(limit)}


@router.post("/reload", response_model=ReloadedOut)
async def reload(request: Request, server: Serving, caller: Calling) -> Any:
    """Read configuration and keys again. If something is wrong with them, nothing changes."""
    server.checks.origin(request, "reload")
    reloader: Reloader = request.app.state.reloader
    restart = await reloader.reload(caller)
    pairs, memories = list(map(str, server.desks.pairs())), list(server.desks.memories)
    return {"pairs": pairs, "memories": memories, "keys": len(server.doorkeeper.keys), "restart": restart}
