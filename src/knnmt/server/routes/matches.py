"""`/v1/matches`: fuzzy matches, as a translation memory gives them; `/tmserver`: the same for clients of amaGama."""

from typing import Annotated, Any

import anyio
import anyio.to_thread
from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, StrictStr

from knnmt.server.dependencies import Calling, Serving
from knnmt.server.fields import JsonBody
from knnmt.server.match_index import FoundMatch, MatchIndex
from knnmt.server.people import Caller
from knnmt.server.server import Server
from knnmt.translate.fuzzy import LEAST

MOST, FEWEST = 50, 5  # matches of a text, and how many without asking
LOWEST = 0.3  # score: below, nearly all of a memory would have to be compared
router = APIRouter(prefix="/v1", tags=["Memory"])
tmserver = APIRouter(prefix="/tmserver", tags=["Memory"])
_searches = anyio.CapacityLimiter(1)  # they share the CPU with the model

Limit = Annotated[int, Query(ge=1, le=MOST, description="maximum matches of a text")]
Least = Annotated[float, Query(ge=LOWEST, le=1, allow_inf_nan=False, description="minimum score")]
Memories = Annotated[list[str] | None, Query(description="names of memories, repeatable; default: the pair's")]


class Asked(JsonBody):
    """Texts, and which matches to find."""

    q: StrictStr | list[StrictStr] = Field(description="text, or list of texts")
    source: StrictStr | None = Field(
        default=None, min_length=1, description="source language; default: the first pair's"
    )
    target: StrictStr | None = Field(default=None, min_length=1, description="target language")
    memories: list[StrictStr] | None = Field(default=None, description="names of memories; default: the pair's")
    limit: int = Field(default=FEWEST, ge=1, le=MOST, description="maximum matches of a text")
    least: float = Field(default=LEAST, ge=LOWEST, le=1, allow_inf_nan=False, description="minimum score")


class MatchOut(BaseModel):
    """A segment that is like a text; `score` is 1 for the very same source, 0.99 if only case or punctuation differ."""

    score: float
    source: str
    target: str
    id: str | None
    origin: str
    memory: str


class MatchesOut(BaseModel):
    """The matches of each text, best first."""

    matches: list[list[MatchOut]]


class TmLanguages(BaseModel):
    """Languages of amaGama's interface."""

    sourceLanguages: list[str]  # noqa: N815  the names are amaGama's
    targetLanguages: list[str]  # noqa: N815


class TmMatch(BaseModel):
    """A match; `quality` is a percentage."""

    source: str
    target: str
    quality: float
    rank: float


@router.get("/matches", response_model=MatchesOut)
async def matches_of_text(
    request: Request,
    server: Serving,
    caller: Calling,
    q: Annotated[str, Query(min_length=1, description="text")],
    source: Annotated[str | None, Query(min_length=1, description="source language; default: the first pair's")] = None,
    target: Annotated[str | None, Query(min_length=1, description="target language")] = None,
    memories: Memories = None,
    limit: Limit = FEWEST,
    least: Least = LEAST,
) -> Any:
    """Find the segments whose source is most like a text."""
    asked = Asked(q=q, source=source, target=target, memories=memories, limit=limit, least=least)
    return {"matches": [[_shown(match) for match in some] for some in await _find(request, server, caller, asked)]}


@router.post("/matches", response_model=MatchesOut)
async def matches(asked: Asked, request: Request, server: Serving, caller: Calling) -> Any:
    """Find the segments whose source is most like each text."""
    return {"matches": [[_shown(match) for match in some] for some in await _find(request, server, caller, asked)]}


@tmserver.get("/languages/", response_model=TmLanguages)
async def tm_languages(server: Serving) -> Any:
    """List the languages, for clients of amaGama."""
    pairs = server.pairs()
    return {
        "sourceLanguages": list(dict.fromkeys(_underscored(pair.source) for pair in pairs)),
        "targetLanguages": list(dict.fromkeys(_underscored(pair.target) for pair in pairs)),
    }


@tmserver.get("/{source}/{target}/unit/{text:path}", response_model=list[TmMatch])
async def tm_unit(
    source: str,
    target: str,
    text: str,
    request: Request,
    server: Serving,
    caller: Calling,
    min_similarity: Annotated[int, Query(ge=0, le=100, description="minimum score, a percentage")] = 70,
    max_candidates: Limit = FEWEST,
) -> Any:
    """Find the segments whose source is most like a text, for clients of amaGama."""
    least = max(LOWEST, min_similarity / 100)
    asked = Asked(q=text, source=source, target=target, limit=max_candidates, least=least)
    (found,) = await _find(request, server, caller, asked)
    return [
        {
            "source": match.segment.source,
            "target": match.segment.target,
            "quality": round(100 * match.score, 1),
            "rank": round(100 * match.score, 1),
        }
        for match in found
    ]


async def _find(request: Request, server: Server, caller: Caller, asked: Asked) -> list[list[FoundMatch]]:
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    server.checks.size(texts)
    found = await server.current(server.desk(caller, asked.source, asked.target, asked.memories))
    index: MatchIndex = request.app.state.matches

    def search() -> list[list[FoundMatch]]:
        return [index.find(found, text, asked.limit, asked.least) for text in texts]

    return await anyio.to_thread.run_sync(search, limiter=_searches)


def _shown(match: FoundMatch) -> dict[str, Any]:
    segment = match.segment
    named = {"score": round(match.score, 4), "id": segment.id, "memory": match.memory, "origin": segment.origin}
    return named | {"source": segment.source, "target": segment.target}


def _underscored(tag: str) -> str:
    """A language as gettext writes it, in lower case: `pt_br`."""
    return tag.replace("-", "_").lower()
