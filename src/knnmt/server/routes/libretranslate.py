"""LibreTranslate's API. `/suggest` teaches the store: the next translation uses it."""

from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StrictStr
from pydantic_core import PydanticKnownError

from knnmt.corpus import Segment
from knnmt.server.dependencies import Serving, while_connected
from knnmt.server.description import language, limit
from knnmt.server.desks import Desk
from knnmt.server.detection import Detected, name_of, ranked
from knnmt.server.fields import body_schema, fields
from knnmt.server.people import ANYONE
from knnmt.server.server import Server
from knnmt.server.texts import TextQuery, render
from knnmt.server.work_items import DecodingOptions

router = APIRouter(tags=["LibreTranslate"])
FORMATS = ("text", "html")
DETECTED, LEAST = 3, 0.05  # languages that `/detect` answers, and how likely all but the first are at least

Text = Annotated[StrictStr, Field(min_length=1)]
ApiKey = Annotated[StrictStr | None, Field(description="API key, if the server requires one")]


def _number(given: Any) -> Any:
    """A number, whether it came as one or as text; false is none."""
    if isinstance(given, bool):
        raise PydanticKnownError("int_type")
    return given


class TranslateFields(BaseModel):
    """Fields of `/translate`."""

    model_config = ConfigDict(extra="ignore")

    q: Text | Annotated[list[StrictStr], Field(min_length=1)] = Field(
        description="text, or list of texts", examples=["Guten Morgen!"]
    )
    source: Text = Field(
        description="language code, or auto", examples=["de"], json_schema_extra=language("source", auto=True)
    )
    target: Text = Field(description="language code", examples=["en"], json_schema_extra=language("target"))
    format: StrictStr = Field(
        default="text", description="plain text, or HTML (tags are kept)", json_schema_extra={"enum": [*FORMATS, ""]}
    )
    alternatives: Annotated[int, BeforeValidator(_number), AfterValidator(lambda number: max(0, number))] = Field(
        default=0,
        description="number of alternative translations",
        json_schema_extra=limit("max_alternatives"),
    )
    api_key: ApiKey = None


class DetectFields(BaseModel):
    """Fields of `/detect`."""

    model_config = ConfigDict(extra="ignore")

    q: Text = Field(description="text", examples=["Guten Morgen!"])
    api_key: ApiKey = None


class SuggestFields(BaseModel):
    """Fields of `/suggest`."""

    model_config = ConfigDict(extra="ignore")

    q: Text = Field(description="source text", examples=["Guten Morgen!"])
    s: Text = Field(description="its translation", examples=["Good morning!"])
    source: Text = Field(description="language code", examples=["de"], json_schema_extra=language("source"))
    target: Text = Field(description="language code", examples=["en"], json_schema_extra=language("target"))
    api_key: ApiKey = None


class Language(BaseModel):
    """A language, and the languages it can be translated into."""

    code: str
    name: str
    targets: list[str]
    supportedFilesFormat: list[str]  # noqa: N815  the name is LibreTranslate's


class Detection(BaseModel):
    """A detected language, with a confidence from 0 to 100."""

    confidence: float
    language: str


class Translated(BaseModel):
    """The translation of a text, or of each text of a list."""

    translatedText: str | list[str]  # noqa: N815
    detectedLanguage: Detection | list[Detection] | None = None  # noqa: N815
    alternatives: list[str] | list[list[str]] | None = None


class Success(BaseModel):
    """Done."""

    success: bool


class Health(BaseModel):
    """Alive."""

    status: str


@router.get("/languages", response_model=list[Language])
async def languages(server: Serving) -> Any:
    """List the languages."""
    targets: dict[str, list[str]] = {}
    for pair in server.pairs():
        targets.setdefault(pair.source, []).append(pair.target)
    for pair in server.pairs():
        targets.setdefault(pair.target, [])
    return [
        {"code": code, "name": name_of(code), "targets": reached, "supportedFilesFormat": server.suffixes}
        for code, reached in targets.items()
    ]


@router.post(
    "/translate",
    response_model=Translated,
    response_model_exclude_none=True,
    openapi_extra=body_schema(TranslateFields),
)
async def translate(request: Request, server: Serving) -> Any:
    """Translate a text, or a list of texts."""
    asked = await fields(request, TranslateFields)
    caller, most = server.caller(request, asked.api_key), server.settings.max_alternatives
    if asked.alternatives > most:
        raise HTTPException(400, f"Invalid request: alternatives parameter must be <= {most}")
    if asked.format not in FORMATS:
        raise HTTPException(400, f"{asked.format} format is not supported")

    def options(desk: Desk) -> DecodingOptions:
        beam = max(server.settings.beam, asked.alternatives + 1)
        return DecodingOptions(beam=beam, n_best=asked.alternatives + 1, glossary=desk.glossaries.own)

    query = TextQuery(
        [asked.q] if isinstance(asked.q, str) else asked.q,
        None if asked.source == "auto" else asked.source,
        asked.target,
        "html" if asked.format == "html" else "text",
    )
    found = await while_connected(request, render(server, caller, query, options))
    answer: dict[str, Any] = {"translatedText": [each.translations[0] for each in found]}
    if asked.alternatives:
        answer["alternatives"] = [_others(each.translations) for each in found]
    if query.source is None:
        answer["detectedLanguage"] = [_detection(each.source) for each in found]
    return {name: values[0] for name, values in answer.items()} if isinstance(asked.q, str) else answer


def _others(translations: list[str]) -> list[str]:
    """The alternatives, each once and none like the first."""
    return [text for text in dict.fromkeys(translations) if text and text != translations[0]]


def _detection(found: Detected) -> dict[str, Any]:
    return {"confidence": round(100 * found.confidence, 1), "language": found.language}


@router.post("/detect", response_model=list[Detection], openapi_extra=body_schema(DetectFields))
async def detect(request: Request, server: Serving) -> Any:
    """Detect the language of a text, the most likely first."""
    asked = await fields(request, DetectFields)
    server.caller(request, asked.api_key)
    server.checks.size([asked.q])
    found = await anyio.to_thread.run_sync(ranked, asked.q, _codes(server))
    return [_detection(each) for each in found[:DETECTED] if each is found[0] or each.confidence >= LEAST]


def _codes(server: Server) -> list[str]:
    """The languages of the server."""
    return list(dict.fromkeys(code for pair in server.pairs() for code in (pair.source, pair.target)))


@router.post("/suggest", response_model=Success, openapi_extra=body_schema(SuggestFields))
async def suggest(request: Request, server: Serving) -> Any:
    """Teach a translation. It replaces an earlier one of the same text."""
    asked = await fields(request, SuggestFields)
    caller = server.caller(request, asked.api_key)
    desk = server.desk(caller, asked.source, asked.target)
    server.checks.origin(request, "teach")
    server.checks.size([asked.q, asked.s])
    await server.teaching.teach(desk, [Segment(asked.q, asked.s, "suggested")])
    return {"success": True}


@router.get("/health", response_model=Health)
async def health() -> Any:
    """Report that the server is alive."""
    return {"status": "ok"}


@router.get("/frontend/settings", response_model=dict[str, Any])
async def frontend_settings(server: Serving) -> Any:
    """Settings for a frontend."""
    desk, limits = server.desk(ANYONE), server.settings
    pair = desk.pair
    return {
        "apiKeys": server.doorkeeper.needs_key,
        "charLimit": limits.max_characters,
        "filesTranslation": bool(server.suffixes),
        "frontendTimeout": 500,
        "keyRequired": server.doorkeeper.needs_key,
        "language": {
            "source": {"code": pair.source, "name": name_of(pair.source)},
            "target": {"code": pair.target, "name": name_of(pair.target)},
        },
        "suggestions": server.teaching.accepted(desk),
        "supportedFilesFormat": server.suffixes,
    }
