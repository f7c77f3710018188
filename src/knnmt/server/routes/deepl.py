"""DeepL's API, version 2: `/v2/translate`, `/v2/languages`, `/v2/usage`. Errors are {"message": …}, as DeepL's are."""

import json
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, WithJsonSchema

from knnmt.languages import closeness
from knnmt.server.caller_glossaries import CallerGlossaries, base
from knnmt.server.dependencies import Calling, Serving, while_connected
from knnmt.server.description import VARIANTS, language
from knnmt.server.desks import Desk
from knnmt.server.detection import name_of
from knnmt.server.failures import FAILED, log_failure
from knnmt.server.fields import Flag, body_schema, given_fields, validated
from knnmt.server.glossaries import TermIn
from knnmt.server.people import Caller
from knnmt.server.server import Server
from knnmt.server.texts import TextQuery, render
from knnmt.server.work_items import DecodingOptions

_log = logging.getLogger(__name__)
Model = TypeVar("Model", bound=BaseModel)

LIMIT = 1_000_000_000_000  # characters, as DeepL says where there is no limit
NAMES = {
    "en-GB": "English (British)", "en-US": "English (American)",
    "pt-BR": "Portuguese (Brazilian)", "pt-PT": "Portuguese (European)",
}  # fmt: skip
GLOSSARIES = 5  # of a request
QUOTA_EXCEEDED, LONG = 456, 600  # DeepL's status for limits that hold longer than these seconds
REPEATED = ("text", "ignore_tags", "glossary_ids")
SOURCE, TARGET = language("source", deepl=True), language("target", deepl=True)
NEEDS_SOURCE: Any = {"dependentRequired": {name: ["source_lang"] for name in ("glossary_id", "glossary_ids")}}


class Message(BaseModel):
    """An error."""

    message: str


class DeepLRoute(APIRoute):
    """A route whose errors have DeepL's form; their status and text are those of all other routes."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Answer, or refuse."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except Exception as error:
                handlers = request.app.exception_handlers
                refuse = next((handlers[kind] for kind in type(error).__mro__ if kind in handlers), None)
                if refuse is None:
                    log_failure(_log, error)
                    return JSONResponse({"message": FAILED}, 500)
                refused = await refuse(request, error)
                wait = refused.headers.get("retry-after")
                quota = refused.status_code == 429 and int(wait or 0) >= LONG
                headers = {} if wait is None or quota else {"Retry-After": wait}
                status = QUOTA_EXCEEDED if quota else refused.status_code
                return JSONResponse({"message": json.loads(refused.body)["error"]}, status, headers)

        return answer


RESPONSES: dict[int | str, dict[str, Any]] = {code: {"model": Message} for code in (400, 403, 404, 429, 500, 503, 504)}
router = APIRouter(prefix="/v2", tags=["DeepL"], route_class=DeepLRoute, responses=RESPONSES)


def _several(given: Any) -> Any:
    """A list, whether it came as one, as a single text, or as texts separated by commas."""
    every = given if isinstance(given, list) else [given]
    return [part for each in every for part in (map(str.strip, each.split(",")) if isinstance(each, str) else [each])]


def _one_or_several(given: Any) -> Any:
    return given if isinstance(given, list) else [given]


FORMALITIES = ("default", "prefer_more", "prefer_less")  # that have no effect; `more` and `less` are refused
Formality = Annotated[
    Literal["default", "more", "less", "prefer_more", "prefer_less"], WithJsonSchema({"enum": list(FORMALITIES)})
]
ONE: dict[str, Any] = {"type": "string"}
MANY: dict[str, Any] = {"type": "array", "items": ONE}
Texts = Annotated[
    list[StrictStr],
    BeforeValidator(_one_or_several),
    WithJsonSchema({"anyOf": [ONE, MANY | {"minItems": 1}]}),
]
Names = Annotated[
    list[StrictStr],
    BeforeValidator(_several),
    WithJsonSchema({"anyOf": [ONE, MANY]}),
]


class CommonFields(BaseModel):
    """Fields of texts and documents; what is not listed has no effect."""

    model_config = ConfigDict(extra="ignore", json_schema_extra=NEEDS_SOURCE)

    target_lang: StrictStr = Field(
        min_length=1,
        description="target language",
        examples=["EN-US"],
        json_schema_extra=TARGET,
    )
    source_lang: StrictStr | None = Field(
        default=None,
        description="source language; detected if it is not given",
        json_schema_extra=SOURCE,
    )
    formality: Formality = Field(default="default", description="no effect; more and less are refused")
    glossary_id: StrictStr | None = Field(default=None, description="glossary to use; needs source_lang")


class TranslateFields(CommonFields):
    """Fields of `/v2/translate`."""

    text: Texts = Field(min_length=1, description="text to translate, or several")
    tag_handling: Literal["xml", "html"] | None = Field(default=None, description="kind of markup in the texts")
    ignore_tags: Names = Field(
        default=[], description="elements of XML that are kept as they are, in a list or with commas"
    )
    split_sentences: Literal["0", "1", "nonewlines"] = Field(default="1", description="no effect")
    preserve_formatting: Flag = Field(default=False, description="no effect: formatting is always preserved")
    glossary_ids: Names = Field(
        default=[],
        max_length=GLOSSARIES,
        description="glossaries to use, the first counts first; needs source_lang",
        json_schema_extra={"anyOf": [ONE, MANY | {"maxItems": GLOSSARIES}]},
    )
    show_billed_characters: Flag = Field(default=False, description="whether to count characters")
    model_type: StrictStr | None = Field(default=None, description="no effect")


class TextResult(BaseModel):
    """A translation."""

    detected_source_language: str
    text: str
    billed_characters: int | None = None
    model_type_used: str | None = None


class Translations(BaseModel):
    """One for each text, in order."""

    translations: list[TextResult]


class LanguageOut(BaseModel):
    """A language; formality cannot be chosen."""

    language: str
    name: str
    supports_formality: bool | None = None


class Usage(BaseModel):
    """Characters that the caller has sent since the server was started; there is no limit."""

    character_count: int
    character_limit: int


def deepl_fields(model: type[Model], given: dict[str, Any]) -> Model:
    """Validate fields; 400 in DeepL's words."""
    for name, field in model.model_fields.items():
        if field.is_required() and given.get(name) in (None, "", []):
            raise HTTPException(400, f"Parameter '{name}' not specified.")
    try:
        return validated(model, given)
    except HTTPException as error:
        name = str(error.detail).removeprefix("Invalid request: ").partition(":")[0]
        if name in model.model_fields:
            raise HTTPException(400, f"Value for '{name}' not supported.") from None
        raise


@router.post(
    "/translate",
    response_model=Translations,
    response_model_exclude_none=True,
    openapi_extra=body_schema(TranslateFields, REPEATED),
)
async def translate(request: Request, server: Serving, caller: Calling) -> Any:
    """Translate texts."""
    given = await given_fields(request, REPEATED)
    if given.get("text") == "":  # a text, if an empty one
        given["text"] = [""]
    asked = deepl_fields(TranslateFields, given)
    check_languages(server, asked.source_lang, asked.target_lang)
    check_formality(asked.formality)
    chosen = [*([asked.glossary_id] if asked.glossary_id else []), *asked.glossary_ids]
    terms = terms_of(glossaries_of(request), caller, chosen, asked.source_lang, asked.target_lang)

    def options(desk: Desk) -> DecodingOptions:
        return DecodingOptions(beam=server.settings.beam, glossary=desk.glossaries.of(terms))

    query = TextQuery(asked.text, asked.source_lang, asked.target_lang, asked.tag_handling or "text", asked.ignore_tags)
    found = await while_connected(request, render(server, caller, query, options))
    usage_of(request)[caller.id] += sum(map(len, asked.text))
    return {
        "translations": [
            {
                "detected_source_language": base(each.source.language).upper(),
                "text": each.translations[0],
                "billed_characters": len(text) if asked.show_billed_characters else None,
                "model_type_used": "latency_optimized" if asked.model_type else None,
            }
            for text, each in zip(asked.text, found, strict=True)
        ]
    }


def check_languages(server: Server, source: str | None, target: str) -> None:
    """Refuse languages that the server does not know, in DeepL's words."""
    pairs = server.pairs()
    if not any(closeness(pair.target, target) for pair in pairs):
        raise HTTPException(400, "Value for 'target_lang' not supported.")
    if source is not None and not any(closeness(pair.source, source) for pair in pairs):
        raise HTTPException(400, "Value for 'source_lang' not supported.")


def check_formality(formality: str) -> None:
    """Refuse a formality that must be kept: the models have none to choose."""
    if formality in ("more", "less"):
        raise HTTPException(400, "'formality' is not supported for given 'target_lang'.")


def terms_of(
    kept: CallerGlossaries, caller: Caller, ids: list[str], source: str | None, target: str
) -> tuple[TermIn, ...]:
    """The terms of glossaries for a pair of languages; of several for the same source the first glossary's."""
    terms: dict[str, TermIn] = {}
    for glossary in [kept.find(caller, id) for id in ids]:
        if source is None:
            raise HTTPException(400, "Use of a glossary requires the source_lang parameter to be specified")
        entries = glossary.dictionaries.get((base(source), base(target)))
        if entries is None:
            raise HTTPException(400, "The glossary has no dictionary for source_lang and target_lang")
        terms = {term.source: term for term in entries} | terms
    return tuple(terms.values())


def glossaries_of(request: Request) -> CallerGlossaries:
    """The glossaries of the server's callers."""
    kept: CallerGlossaries = request.app.state.glossaries
    return kept


def usage_of(request: Request) -> Counter[str | None]:
    """Characters by caller."""
    counts: Counter[str | None] = request.app.state.characters
    return counts


@router.get("/languages", response_model=list[LanguageOut], response_model_exclude_none=True)
async def languages(
    request: Request, server: Serving, caller: Calling, type: Literal["source", "target"] | None = None
) -> Any:
    """List source or target languages."""
    kind = type or (await given_fields(request)).get("type", "source")  # DeepL's own client sends it in a body
    if kind not in ("source", "target"):
        raise HTTPException(400, "Parameter 'type' is invalid. 'source' and 'target' are valid values.")
    tags = dict.fromkeys(getattr(pair, kind) for pair in server.pairs())
    if kind == "source":
        codes = dict.fromkeys(base(tag) for tag in tags)
        return [{"language": code.upper(), "name": name_of(code)} for code in codes]
    codes = dict.fromkeys(code for tag in tags for code in VARIANTS.get(tag, (tag,)))
    return [
        {"language": code.upper(), "name": NAMES.get(code, name_of(code)), "supports_formality": False}
        for code in codes
    ]


@router.get("/usage", response_model=Usage)
async def usage(request: Request, caller: Calling) -> Any:
    """Report how much the caller has translated."""
    return {"character_count": usage_of(request)[caller.id], "character_limit": LIMIT}
