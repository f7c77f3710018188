"""DeepL's glossaries: version 2 (one pair of languages each) and version 3 (a dictionary for each pair). Callers see
their own only."""

from dataclasses import replace
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import Response
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from knnmt.server.caller_glossaries import (
    MAX_NAME,
    CallerGlossary,
    Entries,
    Languages,
    base,
    merged,
    parse_entries,
    to_tsv,
)
from knnmt.server.dependencies import Calling, Serving
from knnmt.server.fields import body_schema, given_fields
from knnmt.server.people import Caller
from knnmt.server.routes.deepl import RESPONSES, SOURCE, TARGET, DeepLRoute, Message, deepl_fields, glossaries_of
from knnmt.server.server import Server

TSV = "text/tab-separated-values"
DICTIONARIES = 100  # of a glossary
KEPT = RESPONSES | {409: {"model": Message, "description": "Too many glossaries"}}
second = APIRouter(prefix="/v2", tags=["DeepL"], route_class=DeepLRoute, responses=KEPT)
third = APIRouter(prefix="/v3/glossaries", tags=["DeepL"], route_class=DeepLRoute, responses=KEPT)


class DictionaryIn(BaseModel):
    """Terms of a pair of languages."""

    model_config = ConfigDict(extra="ignore")

    source_lang: StrictStr = Field(
        min_length=1, description="source language", examples=["de"], json_schema_extra=SOURCE
    )
    target_lang: StrictStr = Field(
        min_length=1, description="target language", examples=["en"], json_schema_extra=TARGET
    )
    entries: StrictStr = Field(
        min_length=1,
        description="a source and a target term in each line, all sources different",
        json_schema_extra={"format": "glossary-entries"},
    )
    entries_format: StrictStr = Field(
        min_length=1, description="kind of table", examples=["tsv"], json_schema_extra={"enum": ["tsv", "csv"]}
    )


class GlossaryIn(DictionaryIn):
    """A glossary of version 2."""

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME, description="name, for people")


class MultilingualGlossaryIn(BaseModel):
    """A glossary of version 3."""

    model_config = ConfigDict(extra="ignore")

    name: StrictStr = Field(min_length=1, max_length=MAX_NAME, description="name, for people")
    dictionaries: list[DictionaryIn] = Field(min_length=1, max_length=DICTIONARIES)


class GlossaryChange(BaseModel):
    """Another name, or entries to add to dictionaries."""

    model_config = ConfigDict(extra="ignore")

    name: StrictStr | None = Field(default=None, max_length=MAX_NAME)
    dictionaries: list[DictionaryIn] = Field(default=[], max_length=DICTIONARIES)


class GlossaryOut(BaseModel):
    """A glossary of version 2."""

    glossary_id: str
    name: str
    ready: bool = True
    source_lang: str
    target_lang: str
    creation_time: str
    entry_count: int


class GlossariesOut(BaseModel):
    """The caller's glossaries of one dictionary."""

    glossaries: list[GlossaryOut]


class DictionaryOut(BaseModel):
    """A dictionary, without its entries."""

    source_lang: str
    target_lang: str
    entry_count: int


class MultilingualGlossaryOut(BaseModel):
    """A glossary of version 3."""

    glossary_id: str
    name: str
    dictionaries: list[DictionaryOut]
    creation_time: str


class MultilingualGlossariesOut(BaseModel):
    """The caller's glossaries."""

    glossaries: list[MultilingualGlossaryOut]


class EntriesOut(BaseModel):
    """A dictionary, with its entries."""

    source_lang: str
    target_lang: str
    entries: str
    entries_format: str = "tsv"


class DictionariesOut(BaseModel):
    """Dictionaries."""

    dictionaries: list[EntriesOut]


class PairOut(BaseModel):
    """A pair of languages."""

    source_lang: str
    target_lang: str


class PairsOut(BaseModel):
    """Pairs of languages for which glossaries can be made."""

    supported_languages: list[PairOut]


@second.get("/glossary-language-pairs", response_model=PairsOut)
async def pairs(server: Serving, caller: Calling) -> Any:
    """List the pairs of languages that glossaries can have."""
    found = dict.fromkeys((base(pair.source), base(pair.target)) for pair in server.pairs())
    return {"supported_languages": [{"source_lang": source, "target_lang": target} for source, target in found]}


# ---------------------------------------------------------------------------------------------------------- version 2


@second.post("/glossaries", response_model=GlossaryOut, status_code=201, openapi_extra=body_schema(GlossaryIn))
async def created(request: Request, server: Serving, caller: Calling) -> Any:
    """Create a glossary."""
    asked = deepl_fields(GlossaryIn, await given_fields(request))
    return _of_one(await _put(request, server, caller, CallerGlossary.new(asked.name, _read(server, [asked]))))


@second.get("/glossaries", response_model=GlossariesOut)
async def listed(request: Request, caller: Calling) -> Any:
    """List the caller's glossaries that have one dictionary."""
    every = glossaries_of(request).listed(caller)
    return {"glossaries": [_of_one(one) for one in every if len(one.dictionaries) == 1]}


@second.get("/glossaries/{id}", response_model=GlossaryOut)
async def shown(id: str, request: Request, caller: Calling) -> Any:
    """Describe a glossary."""
    return _of_one(_single(glossaries_of(request).find(caller, id)))


@second.get("/glossaries/{id}/entries", response_class=Response, responses={200: {"content": {TSV: {}}}})
async def entries(id: str, request: Request, caller: Calling) -> Response:
    """Fetch the entries of a glossary, as TSV."""
    ((_, found),) = _single(glossaries_of(request).find(caller, id)).dictionaries.items()
    return Response(to_tsv(found), media_type=f"{TSV}; charset=UTF-8")


@second.delete("/glossaries/{id}", status_code=204)
async def deleted(id: str, request: Request, server: Serving, caller: Calling) -> None:
    """Delete a glossary."""
    await _remove(request, server, caller, id)


# ---------------------------------------------------------------------------------------------------------- version 3


@third.post("", response_model=MultilingualGlossaryOut, status_code=201)
async def created_multilingual(
    asked: MultilingualGlossaryIn, request: Request, server: Serving, caller: Calling
) -> Any:
    """Create a glossary with a dictionary for each pair of languages."""
    glossary = CallerGlossary.new(asked.name, _read(server, asked.dictionaries))
    return _of_many(await _put(request, server, caller, glossary))


@third.get("", response_model=MultilingualGlossariesOut)
async def listed_multilingual(request: Request, caller: Calling) -> Any:
    """List the caller's glossaries."""
    return {"glossaries": [_of_many(one) for one in glossaries_of(request).listed(caller)]}


@third.get("/{id}", response_model=MultilingualGlossaryOut)
async def shown_multilingual(id: str, request: Request, caller: Calling) -> Any:
    """Describe a glossary."""
    return _of_many(glossaries_of(request).find(caller, id))


@third.patch("/{id}", response_model=MultilingualGlossaryOut)
async def changed(id: str, asked: GlossaryChange, request: Request, server: Serving, caller: Calling) -> Any:
    """Rename a glossary, or add entries: they replace those with the same source."""
    glossary = glossaries_of(request).find(caller, id)
    for languages, some in _read(server, asked.dictionaries).items():
        glossary = merged(glossary, languages, some)
    return _of_many(await _put(request, server, caller, replace(glossary, name=asked.name or glossary.name)))


@third.put("/{id}/dictionaries", response_model=DictionaryOut)
async def replaced(id: str, asked: DictionaryIn, request: Request, server: Serving, caller: Calling) -> Any:
    """Replace a dictionary of a glossary, or add one."""
    glossary = glossaries_of(request).find(caller, id)
    new = _read(server, [asked])
    every = {**glossary.dictionaries, **new}
    if len(every) > DICTIONARIES:
        raise HTTPException(409, f"Too many dictionaries: a glossary may have {DICTIONARIES}")
    await _put(request, server, caller, replace(glossary, dictionaries=every))
    ((languages, some),) = new.items()
    return _dictionary(languages, some)


@third.get("/{id}/entries", response_model=DictionariesOut)
async def entries_of(id: str, source_lang: str, target_lang: str, request: Request, caller: Calling) -> Any:
    """Fetch the entries of a dictionary."""
    languages, found = _find(glossaries_of(request).find(caller, id), source_lang, target_lang)
    return {"dictionaries": [{**_languages(languages), "entries": to_tsv(found)}]}


@third.delete("/{id}/dictionaries", status_code=204)
async def deleted_dictionary(
    id: str, source_lang: str, target_lang: str, request: Request, server: Serving, caller: Calling
) -> None:
    """Delete a dictionary of a glossary."""
    glossary = glossaries_of(request).find(caller, id)
    languages, _ = _find(glossary, source_lang, target_lang)
    left = {pair: some for pair, some in glossary.dictionaries.items() if pair != languages}
    await _put(request, server, caller, replace(glossary, dictionaries=left))


@third.delete("/{id}", status_code=204)
async def deleted_multilingual(id: str, request: Request, server: Serving, caller: Calling) -> None:
    """Delete a glossary."""
    await _remove(request, server, caller, id)


# ------------------------------------------------------------------------------------------------------------- shared


def _read(server: Server, given: list[Any]) -> dict[Languages, Entries]:
    """The dictionaries of a request; 400 for languages that the server does not translate."""
    known = {(base(pair.source), base(pair.target)) for pair in server.pairs()}
    found: dict[Languages, Entries] = {}
    for each in given:
        languages = base(each.source_lang), base(each.target_lang)
        if languages not in known:
            raise HTTPException(400, "Unsupported glossary source and target language pair")
        if each.entries_format not in ("tsv", "csv"):
            raise HTTPException(400, "Value for 'entries_format' not supported.")
        found[languages] = parse_entries(each.entries, each.entries_format)
    return found


async def _put(request: Request, server: Server, caller: Caller, glossary: CallerGlossary) -> CallerGlossary:
    server.checks.origin(request, "keep glossaries on")
    return await anyio.to_thread.run_sync(glossaries_of(request).put, caller, glossary)


async def _remove(request: Request, server: Server, caller: Caller, id: str) -> None:
    server.checks.origin(request, "delete glossaries of")
    await anyio.to_thread.run_sync(glossaries_of(request).remove, caller, id)


def _single(glossary: CallerGlossary) -> CallerGlossary:
    """A glossary of one dictionary: version 2 knows no others."""
    if len(glossary.dictionaries) != 1:
        raise HTTPException(404, "Glossary not found")
    return glossary


def _find(glossary: CallerGlossary, source: str, target: str) -> tuple[Languages, Entries]:
    languages = base(source), base(target)
    if languages not in glossary.dictionaries:
        raise HTTPException(404, "Dictionary not found")
    return languages, glossary.dictionaries[languages]


def _languages(languages: Languages) -> dict[str, Any]:
    return {"source_lang": languages[0], "target_lang": languages[1]}


def _dictionary(languages: Languages, found: Entries) -> dict[str, Any]:
    return {**_languages(languages), "entry_count": len(found)}


def _of_one(glossary: CallerGlossary) -> dict[str, Any]:
    ((languages, found),) = glossary.dictionaries.items()
    described = {"glossary_id": glossary.id, "name": glossary.name, "creation_time": glossary.created}
    return described | _dictionary(languages, found)


def _of_many(glossary: CallerGlossary) -> dict[str, Any]:
    dictionaries = [_dictionary(*each) for each in glossary.dictionaries.items()]
    described = {"glossary_id": glossary.id, "name": glossary.name, "creation_time": glossary.created}
    return described | {"dictionaries": dictionaries}
