"""`/v1/me`: who calls, and what they may do; `/v1/memories`: the memories that they may use."""

from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel, Field

from knnmt.server.dependencies import Recognised, Serving
from knnmt.server.detection import name_of
from knnmt.server.people import Role

router = APIRouter(prefix="/v1", tags=["Team"])


class LanguageOut(BaseModel):
    """A language: its tag, and its name in English."""

    code: str
    name: str


class PairOut(BaseModel):
    """A pair of languages, with the memories that the caller gets without naming any, the most specific first."""

    source: LanguageOut
    target: LanguageOut
    memories: list[str]
    learning: str | None = Field(description="memory that lessons and suggestions go to; null: none are accepted")
    review: bool = Field(description="whether lessons wait for a reviewer before they are used")


class Me(BaseModel):
    """The caller; `name` is empty on a server without keys."""

    name: str
    role: Role
    keys: bool = Field(description="whether the server requires keys")
    pairs: list[PairOut]


class MemoryOut(BaseModel):
    """A memory, and the caller's role for it."""

    name: str
    source: str
    target: str
    segments: int
    taught: int = Field(description="segments that were taught, and not imported by a build")
    role: Role
    learns: bool = Field(description="whether the caller may teach it, at once")


class MemoriesOut(BaseModel):
    """The memories that the caller may use."""

    memories: list[MemoryOut]


@router.get("/me", response_model=Me)
async def me(server: Serving, caller: Recognised) -> Any:
    """Describe the caller: name, role, pairs of languages, default memories."""
    pairs = []
    for languages in server.pairs():
        desk = server.desk(caller, languages.source, languages.target)
        accepted = server.teaching.accepted(desk)
        pairs.append(
            {
                "source": {"code": languages.source, "name": name_of(languages.source)},
                "target": {"code": languages.target, "name": name_of(languages.target)},
                "memories": list(desk.memories),
                "learning": desk.learning.name if accepted and desk.learning else None,
                "review": accepted and not server.teaching.at_once(desk),
            }
        )
    return {"name": caller.name, "role": caller.role, "keys": server.doorkeeper.needs_key, "pairs": pairs}


@router.get("/memories", response_model=MemoriesOut)
async def memories(server: Serving, caller: Recognised) -> Any:
    """List the memories that the caller may use."""
    return {
        "memories": [
            {
                "name": memory.name,
                "source": memory.languages.source,
                "target": memory.languages.target,
                "segments": len(memory.store),
                "taught": len(memory.store.lessons.taught),
                "role": caller.role_for(memory.name),
                "learns": server.settings.teach and caller.may("teach", memory.name) and memory.learns,
            }
            for memory in server.desks.of_caller(caller)
        ]
    }
