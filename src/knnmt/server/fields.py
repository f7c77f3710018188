"""The fields of a request, however a client sends them: JSON, a form, or the address."""

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
MOST = 64  # fields of a form
NO_FIELDS = frozenset({"body", "query", "path", "str", "int", "float", "bool"})  # in the place that a fault has
MISSING = ("missing", "string_too_short", "too_short")


async def fields(request: Request, model: type[Model]) -> Model:
    """What a request asks for, or 400. An empty field counts as one that is not there."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        given = _json(await request.body())
    else:
        given = dict(request.query_params)
        given |= await _multipart(request) if kind == "multipart/form-data" else _form(await request.body(), kind)
    try:
        return model.model_validate({name: value for name, value in given.items() if value not in (None, "", [])})
    except ValidationError as error:
        raise HTTPException(400, f"Invalid request: {explained(error.errors(include_url=False))}") from None


def explained(errors: Any) -> str:
    """The first fault, in words."""
    first = errors[0]
    parts = (str(part) for part in reversed(first["loc"]))
    name = next((part for part in parts if part.isidentifier() and part.islower() and part not in NO_FIELDS), "body")
    if first["type"] in MISSING:
        return f"missing {name} parameter"
    return f"{name}: {first['msg'].removeprefix('Value error, ')}"


def _json(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(400, "Invalid JSON format")
    return given


def _form(body: bytes, kind: str) -> dict[str, Any]:
    if kind not in ("", "application/x-www-form-urlencoded"):
        return {}
    try:
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MOST)
    except ValueError:
        raise HTTPException(400, "Invalid request: the form is not UTF-8, or has too many fields") from None
    return _first(pairs)


async def _multipart(request: Request) -> dict[str, Any]:
    try:
        async with request.form(max_files=0, max_fields=MOST, max_part_size=1 << 30) as form:
            return _first([(name, value) for name, value in form.multi_items() if isinstance(value, str)])
    except HTTPException:
        raise
    except Exception:  # the parser has many ways to say that a form is broken
        raise HTTPException(400, "Invalid request: the form is broken") from None


def _first(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """Of several values of a field the first counts; lines end in line feeds, as a form need not have it."""
    given: dict[str, Any] = {}
    for name, value in pairs:
        given.setdefault(name, value.replace("\r\n", "\n").replace("\r", "\n"))
    return given


def body_schema(model: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """What OpenAPI says of such a request."""
    schema = model.model_json_schema()
    kinds = ["application/json", *(["application/x-www-form-urlencoded", "multipart/form-data"] if form else [])]
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
