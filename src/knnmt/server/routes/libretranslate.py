"""LibreTranslate's API. `/suggest` teaches the store: the next translation uses it."""

import itertools
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from knnmt.corpus import Segment
from knnmt.server.dependencies import Server, Serving, while_connected
from knnmt.server.desks import Desk
from knnmt.server.detection import Pair, name_of
from knnmt.server.fields import body_schema, fields
from knnmt.server.people import ANYONE
from knnmt.server.work_items import DecodingOptions
from knnmt.text.html_document import HtmlDocument
from knnmt.text.words import Link
from knnmt.translate.word_alignment import WordAligner

router = APIRouter(tags=["LibreTranslate"])
ALIGNED = 2000  # characters of texts and translations aligned at a time

ApiKey = Annotated[StrictStr | None, Field(description="API key, if the server requires one")]


class TranslateFields(BaseModel):
    """Fields of `/translate`."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr | list[StrictStr] = Field(description="text, or list of texts", examples=["Guten Morgen!"])
    source: StrictStr = Field(description="language code, or auto", examples=["de"])
    target: StrictStr = Field(description="language code", examples=["en"])
    format: Literal["text", "html"] = Field(default="text", description="plain text, or HTML (tags are kept)")
    alternatives: int = Field(default=0, ge=0, description="number of alternative translations")
    api_key: ApiKey = None


class DetectFields(BaseModel):
    """Fields of `/detect`."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr = Field(description="text", examples=["Guten Morgen!"])
    api_key: ApiKey = None


class SuggestFields(BaseModel):
    """Fields of `/suggest`."""

    model_config = ConfigDict(extra="ignore")

    q: StrictStr = Field(description="source text", examples=["Guten Morgen!"])
    s: StrictStr = Field(description="its translation", examples=["Good morning!"])
    source: StrictStr = Field(description="language code", examples=["de"])
    target: StrictStr = Field(description="language code", examples=["en"])
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
    return [each | {"supportedFilesFormat": server.suffixes} for each in server.desk(ANYONE).pair.listed()]


@router.post(
    "/translate",
    response_model=Translated,
    response_model_exclude_none=True,
    openapi_extra=body_schema(TranslateFields),
)
async def translate(request: Request, server: Serving) -> Any:
    """Translate a text, or a list of texts."""
    asked = await fields(request, TranslateFields)
    caller = server.caller(request, asked.api_key)
    if asked.alternatives > server.settings.max_alternatives:
        raise HTTPException(400, f"Invalid request: at most {server.settings.max_alternatives} alternatives")
    texts = [asked.q] if isinstance(asked.q, str) else asked.q
    server.check_size(texts)
    desk = await server.loaded(server.desk(caller, asked.source, asked.target))
    detected = _languages(desk.pair, asked, texts)
    beam = max(server.settings.beam, asked.alternatives + 1)
    options = DecodingOptions(beam=beam, n_best=asked.alternatives + 1, glossary=desk.glossaries.own)
    wanted = [number for number, found in enumerate(detected) if found["language"] != desk.languages.target]
    work = _translations(server, desk, [texts[number] for number in wanted], asked.format, options)
    ranked = [[text] for text in texts]  # a text already in the target language is returned as it is
    for number, translations in zip(wanted, await while_connected(request, work), strict=True):
        ranked[number] = translations
    answer: dict[str, Any] = {"translatedText": [each[0] for each in ranked]}
    if asked.alternatives:
        answer["alternatives"] = [each[1:] for each in ranked]
    if asked.source == "auto":
        answer["detectedLanguage"] = detected
    return {name: values[0] for name, values in answer.items()} if isinstance(asked.q, str) else answer


def _languages(pair: Pair, asked: TranslateFields, texts: list[str]) -> list[dict[str, Any]]:
    """The language of each text, as given or detected."""
    if asked.source != "auto":
        return [{"language": pair.source, "confidence": 100.0}] * len(texts)
    found = map(pair.guess, texts)
    return [{"language": language, "confidence": round(100 * share, 1)} for language, share in found]


async def _translations(
    server: Server, desk: Desk, texts: list[str], kind: str, options: DecodingOptions
) -> list[list[str]]:
    """The translations of each text, best first."""
    if kind == "text":
        found = await server.translate(desk, texts, options)
        return [[each.text for each in (best, *best.alternatives)] for best in found]
    known = await server.worker.call_soon(lambda: server.verbatim(desk, texts))  # taught with its tags
    as_text = iter(await _translations(server, desk, list(itertools.compress(texts, known)), "text", options))
    others = [text for text, is_known in zip(texts, known, strict=True) if not is_known]
    pages = iter(await _translated_html(server, desk, others, options))
    return [next(as_text if is_known else pages) for is_known in known]


async def _translated_html(server: Server, desk: Desk, texts: list[str], options: DecodingOptions) -> list[list[str]]:
    """The translations of each page, best first. Pages with thousands of tags are handled outside the event loop."""
    pages = await anyio.to_thread.run_sync(lambda: [HtmlDocument(text) for text in texts])
    server.check_segments(sum(len(page.texts) for page in pages))
    found = iter(await server.translate(desk, [text for page in pages for text in page.texts], options))
    chosen: list[list[list[str]]] = []  # for each page and rank: the translations of its texts
    for page in pages:
        every = [(best, *best.alternatives) for best in itertools.islice(found, len(page.texts))]
        ranks = range(min(options.n_best, max(map(len, every), default=1)))
        chosen.append([[each[min(rank, len(each) - 1)].text for each in every] for rank in ranks])
    align = WordAligner(desk.translator.model, desk.translator.store)
    links: dict[tuple[str, str], list[Link]] = {}
    pairs = [pair for page, ranked in zip(pages, chosen, strict=True) for some in ranked for pair in _pairs(page, some)]
    for some in _portions(pairs):  # the tokenizer belongs to the model's thread
        links |= await server.worker.call_soon(lambda some=some: {pair: align(*pair) for pair in some})  # type: ignore[misc]

    def place() -> list[list[str]]:
        every = zip(pages, chosen, strict=True)
        return [[page.translated(some, lambda *pair: links[pair]) for some in ranked] for page, ranked in every]

    return await anyio.to_thread.run_sync(place)


def _pairs(page: HtmlDocument, translations: list[str]) -> Iterator[tuple[str, str]]:
    """The texts that contain tags, with their translations."""
    return itertools.compress(zip(page.texts, translations, strict=True), page.tagged)


def _portions(pairs: list[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Distinct pairs in small portions, so that other requests get their turn."""
    some: list[tuple[str, str]] = []
    size = 0
    for pair in dict.fromkeys(pairs):
        some.append(pair)
        size += len(pair[0]) + len(pair[1])
        if size > ALIGNED:
            yield some
            some, size = [], 0
    if some:
        yield some


@router.post("/detect", response_model=list[Detection], openapi_extra=body_schema(DetectFields))
async def detect(request: Request, server: Serving) -> Any:
    """Detect the language of a text."""
    asked = await fields(request, DetectFields)
    caller = server.caller(request, asked.api_key)
    server.check_size([asked.q])
    language, certainty = server.desk(caller).pair.detect(asked.q)
    return [{"confidence": round(100 * certainty, 1), "language": language}]


@router.post("/suggest", response_model=Success, openapi_extra=body_schema(SuggestFields))
async def suggest(request: Request, server: Serving) -> Any:
    """Teach a translation. It replaces an earlier one of the same text."""
    asked = await fields(request, SuggestFields)
    caller = server.caller(request, asked.api_key)
    desk = server.desk(caller, asked.source, asked.target)
    server.check_origin(request, "teach")
    server.check_size([asked.q, asked.s])
    await server.teach(caller, await server.loaded(desk), [Segment(asked.q, asked.s, "suggested")])
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
        "suggestions": server.accepts_lessons(desk),
        "supportedFilesFormat": server.suffixes,
    }
