"""`/v1/translate`: translations with evidence for each token; `/v1/systems`: the retrieval systems to choose from."""

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, HTTPException, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StrictBool, StrictStr, computed_field

from knnmt.corpus.signature import signature
from knnmt.server.dependencies import Calling, Serving, admitted, while_connected
from knnmt.server.description import limit
from knnmt.server.fields import JsonBody
from knnmt.server.glossaries import MAX_TERMS, TermIn, placed
from knnmt.server.work_items import DecodingOptions
from knnmt.systems.table import SYSTEMS, serves
from knnmt.text.glossary import Glossary
from knnmt.translate import Translation, Translator

router = APIRouter(prefix="/v1", tags=["Translation"], dependencies=[Depends(admitted)])
Code = Annotated[str | None, Query(description="language code; default: the first pair's")]
Names = Annotated[list[str] | None, Query(description="names of memories, repeatable; default: the caller's")]
BASE = {"base": "the model alone, without retrieval"}


class Asked(JsonBody):
    """Texts, and how to translate them."""

    model_config = ConfigDict(populate_by_name=True)

    q: StrictStr | list[StrictStr] = Field(description="text, or list of texts, each translated as one segment")
    source: StrictStr | None = Field(default=None, description="language code; default: the first pair's")
    target: StrictStr | None = Field(default=None, description="language code; default: the first pair's")
    memories: list[StrictStr] | None = Field(
        default=None, description="names of memories, the most specific first; default: the caller's"
    )
    system: StrictStr | None = Field(
        default=None, description="retrieval system, or base for plain MT; default: the server's"
    )
    weight: float | None = Field(
        default=None, alias="lambda", ge=0, le=1, allow_inf_nan=False, description="λ: maximum weight of the memory"
    )
    beam: int | None = Field(
        default=None, ge=1, description="beam size; default: the server's", json_schema_extra=limit("max_beam")
    )
    alternatives: int = Field(
        default=0, ge=0, description="number of alternative translations", json_schema_extra=limit("max_alternatives")
    )
    evidence: StrictBool = Field(default=False, description="include the evidence for each token")
    glossary: list[TermIn] = Field(
        default=[], max_length=MAX_TERMS, description="terms that count before those of the server's glossary"
    )


class Signed(BaseModel):
    """A segment's origin, and who taught it when; null where nobody signed."""

    origin: str

    @computed_field
    def author(self) -> str | None:
        """Who taught it."""
        return signature(self.origin).author

    @computed_field
    def date(self) -> str | None:
        """When, in UTC."""
        return signature(self.origin).date


class NeighbourOut(Signed):
    """A retrieved token of the memory; `weight` is its share of p_knn."""

    source: str
    before: str
    token: str
    after: str
    id: str | None
    memory: str = Field(description="name of the store that it is from")
    distance: float
    weight: float


class TokenOut(BaseModel):
    """A token: p = λ·p_knn + (1 − λ)·p_mt; `memory` is the share of p that came from the memory."""

    text: str = Field(validation_alias="token")
    p: float
    p_mt: float
    p_knn: float
    weight: float = Field(serialization_alias="lambda")
    memory: float
    neighbours: list[NeighbourOut]


class AlternativeOut(BaseModel):
    """Another translation."""

    text: str
    score: float


class MatchOut(Signed):
    """The segment of the memory whose source is exactly this text."""

    id: str | None


class TermOut(BaseModel):
    """A term of the glossary in the source text; `start` and `end` are its place in the translation, if it is used."""

    source: str
    target: str
    used: bool
    reason: str = Field(description="why it is not used")
    start: int | None
    end: int | None


class TranslationOut(BaseModel):
    """A translation; `score` is the mean log-probability of its tokens, 0 for a `match`."""

    text: str
    score: float
    match: MatchOut | None
    problems: list[str] = Field(description="what the checks found and could not mend: that sentence is untranslated")
    terms: list[TermOut] = Field(default=[], validation_alias="placed_terms")
    alternatives: list[AlternativeOut]
    tokens: list[TokenOut] = Field(validation_alias="evidence")


class Translations(BaseModel):
    """One for each text, in order."""

    translations: list[TranslationOut]


class SystemOut(BaseModel):
    """A retrieval system."""

    name: str
    summary: str


class SystemsOut(BaseModel):
    """The systems that `/v1/translate` accepts, the default and its λ, and the memories; the last memory learns."""

    model_config = ConfigDict(populate_by_name=True)

    systems: list[SystemOut]
    default: str
    weight: float = Field(serialization_alias="lambda", validation_alias="lambda")
    memories: list[str]


@router.post("/translate", response_model=Translations)
async def translate(asked: Asked, request: Request, server: Serving, caller: Calling) -> Any:
    """Translate texts, with the probability of each token and the segments of the memory behind it."""
    limits = server.settings
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    server.checks.size(texts)
    beam = max(asked.beam or limits.beam, asked.alternatives + 1)
    if beam > max(limits.max_beam, limits.beam) or asked.alternatives > limits.max_alternatives:
        most = f"{limits.max_beam} beams and {limits.max_alternatives} alternatives"
        raise HTTPException(400, f"Invalid request: at most {most}")
    desk = await server.loaded(server.desk(caller, asked.source, asked.target, asked.memories))
    if asked.system is not None and asked.system not in (known := systems_of(desk.translator)):
        raise HTTPException(404, f"no such system: {asked.system!r}; choose from {', '.join(known)}")
    glossary = desk.glossaries.of(asked.glossary)
    options = DecodingOptions(asked.system, asked.weight, beam, asked.alternatives + 1, asked.evidence, glossary)
    found = await while_connected(request, server.translate(desk, texts, options))
    # evidence for a long text is megabytes: serialized in a thread, to keep the event loop free
    return await anyio.to_thread.run_sync(_answer, texts, found, glossary)


@router.get("/systems", response_model=SystemsOut)
async def systems(
    server: Serving, caller: Calling, source: Code = None, target: Code = None, memories: Names = None
) -> Any:
    """List the systems that all memories were built for, and the memories."""
    desk = await server.loaded(server.desk(caller, source, target, memories))
    translator = desk.translator
    settings = translator.retriever.settings if translator.retriever is not None else None
    return {
        "systems": [{"name": name, "summary": summary} for name, summary in systems_of(translator).items()],
        "default": "base" if settings is None else settings.system,
        "lambda": 0.0 if settings is None else settings.weight,
        "memories": list(desk.memories[::-1]),
    }


def systems_of(translator: Translator) -> dict[str, str]:
    """`base`, and the systems that all stores were built for, each with its summary."""
    store = translator.store
    if store is None:
        return BASE
    return BASE | {name: system.summary for name, system in SYSTEMS.items() if serves(store, name)}


def _answer(texts: list[str], found: list[Translation], glossary: Glossary | None) -> Response:
    answer = Translations.model_validate({"translations": found}, from_attributes=True)
    if glossary is not None:
        for shown, text, each in zip(answer.translations, texts, found, strict=True):
            terms = placed(glossary, text, each)
            shown.terms = [TermOut.model_validate(term, from_attributes=True) for term in terms]
    return Response(answer.model_dump_json(by_alias=True), media_type="application/json")
