"""The server's OpenAPI description: what its routes declare, with its own languages and limits filled in."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from knnmt.languages import Languages
from knnmt.server.caller_glossaries import base
from knnmt.server.fields import LANGUAGE
from knnmt.server.settings import ServerSettings

LIMIT = "x-limit"  # a mark as LANGUAGE: the description of a server does not have them any more
VARIANTS = {"en": ("en-GB", "en-US"), "pt": ("pt-BR", "pt-PT")}  # DeepL has no target languages EN and PT
AUTO = "auto"


def language(side: Literal["source", "target"], *, auto: bool = False, deepl: bool = False) -> dict[str, Any]:
    """Mark a field as a language of the server: its codes are listed. `auto` is one too; DeepL has codes of its own."""
    return {LANGUAGE: {"side": side, "auto": auto, "deepl": deepl}}


def limit(setting: str) -> dict[str, Any]:
    """Mark a field as a number that a setting bounds."""
    return {LIMIT: setting}


def openapi(app: FastAPI, pairs: Sequence[Languages], settings: ServerSettings) -> dict[str, Any]:
    """The OpenAPI schema, without FastAPI's 422: validation errors are 400 here. Made once, and after a reload."""
    known: tuple[Sequence[Languages], dict[str, Any]] | None = getattr(app.state, "description", None)
    if known is not None and known[0] == pairs:
        return known[1]
    schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
    for methods in schema["paths"].values():
        for about in methods.values():
            about["responses"].pop("422", None)
    for name in ("HTTPValidationError", "ValidationError"):
        schema["components"]["schemas"].pop(name, None)
    app.state.description = pairs, _filled(schema, pairs, settings)
    return app.state.description[1]  # type: ignore[no-any-return]


def _filled(part: Any, pairs: Sequence[Languages], settings: ServerSettings) -> Any:
    """A part of the schema, with what the marks of its fields stand for."""
    if isinstance(part, list):
        return [_filled(each, pairs, settings) for each in part]
    if not isinstance(part, dict):
        return part
    whole = {
        name: _filled(each, pairs, settings) for name, each in part.items() if name not in (LANGUAGE, LIMIT, "anyOf")
    }
    stated: dict[str, Any] = {}
    if (mark := part.get(LANGUAGE)) is not None:
        stated = {"enum": _codes(mark, pairs)}
    elif (setting := part.get(LIMIT)) is not None:
        stated = {"maximum": getattr(settings, setting)}
    if "anyOf" in part:  # one of them is null
        kinds = (_filled(kind, pairs, settings) for kind in part["anyOf"])
        return whole | {"anyOf": [kind if kind == {"type": "null"} else kind | stated for kind in kinds]}
    return whole | stated | _pairs(part, pairs)


def _pairs(part: dict[str, Any], pairs: Sequence[Languages]) -> dict[str, Any]:
    """What an object with two languages must satisfy: the server translates from one to the other."""
    properties = part.get("properties")
    if not isinstance(properties, dict):
        return {}
    marks = {name: mark for name, each in properties.items() if (mark := _mark(each)) is not None}
    sides = {mark["side"]: name for name, mark in marks.items()}
    if len(sides) < 2:
        return {}
    source, target = sides["source"], sides["target"]
    optional = [] if source in part.get("required", ()) else [None]
    every = []
    for language in dict.fromkeys(pair.target for pair in pairs):
        some = [pair for pair in pairs if pair.target == language]
        codes = {source: [*_codes(marks[source], some), *optional], target: _codes(marks[target], some)}
        every.append({"properties": {name: {"enum": some} for name, some in codes.items()}})
    return {"anyOf": every}


def _mark(field: dict[str, Any]) -> dict[str, Any] | None:
    """The mark of a field, which may be optional."""
    found = (each[LANGUAGE] for each in (field, *field.get("anyOf", ())) if LANGUAGE in each)
    return next(found, None)


def _codes(mark: dict[str, Any], pairs: Iterable[Languages]) -> list[str]:
    """The codes of a language field, as clients write them; nothing, where none need be given."""
    return [*_written(mark, pairs), *([""] if mark.get("empty") else [])]


def _written(mark: dict[str, Any], pairs: Iterable[Languages]) -> list[str]:
    tags = dict.fromkeys(getattr(pair, mark["side"]) for pair in pairs)
    if mark["deepl"]:
        every = [code for tag in tags for code in (base(tag), tag, *VARIANTS.get(tag, ()))]
        return list(dict.fromkeys(spelled for code in every for spelled in (code.upper(), code)))
    return [*tags, *([AUTO] if mark["auto"] else [])]
