"""The fields of a request, sent as JSON, as a form, or in the query string."""

import json
from typing import Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from pydantic import BaseModel, ValidationError

Model = TypeVar("Model", bound=BaseModel)
MAX_FIELDS = 64  # of a form
NO_FIELDS = frozenset({"body", "query", "path", "str", "int", "float", "bool"})  # other parts of pydantic's `loc`
SECRET = frozenset({"api_key"})  # what an address must not contain: it ends up in logs
MISSING = ("missing", "string_too_short", "too_short")


async def fields(request: Request, model: type[Model]) -> Model:
    """Parse and validate the fields of a request; 400 if they are invalid."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        given = _json(await request.body())
    else:
        given = {name: value for name, value in request.query_params.items() if name not in SECRET}
        given |= await _multipart(request) if kind == "multipart/form-data" else _form(await request.body(), kind)
    return validated(model, given)


def validated(model: type[Model], given: dict[str, Any]) -> Model:
    """The fields of a request; 400 if they are invalid. An empty field counts as missing."""
    try:
        return model.model_validate({name: value for name, value in given.items() if value not in (None, "", [])})
    except ValidationError as error:
        raise HTTPException(400, f"Invalid request: {explained(error.errors(include_url=False))}") from None


def explained(errors: Any) -> str:
    """The first validation error, in words."""
    first = errors[0]
    parts = (str(part) for part in reversed(first["loc"]))
    name = next((part for part in parts if part.isidentifier() and part.islower() and part not in NO_FIELDS), "body")
    if first["type"] in MISSING:
        return f"missing {name} parameter"
    if first["type"].startswith(("int_", "float_")):
        return f"{name} parameter is not a number"
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
        pairs = parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise HTTPException(400, "Invalid request: form not UTF-8, or too many fields") from None
    return _first(pairs)


async def _multipart(request: Request) -> dict[str, Any]:
    try:
        async with request.form(max_files=0, max_fields=MAX_FIELDS, max_part_size=1 << 30) as form:
            return _first([(name, value) for name, value in form.multi_items() if isinstance(value, str)])
    except HTTPException:
        raise
    except Exception:  # the parser raises many kinds of errors
        raise HTTPException(400, "Invalid request: malformed form") from None


def _first(pairs: list[tuple[str, str]]) -> dict[str, Any]:
    """The first value of each field, with line ends normalised to line feeds."""
    given: dict[str, Any] = {}
    for name, value in pairs:
        given.setdefault(name, value.replace("\r\n", "\n").replace("\r", "\n"))
    return given


def body_schema(model: type[BaseModel], *, form: bool = True) -> dict[str, Any]:
    """The OpenAPI description of a request body."""
    schema = model.model_json_schema()
    kinds = ["application/json", *(["application/x-www-form-urlencoded", "multipart/form-data"] if form else [])]
    return {"requestBody": {"required": True, "content": {kind: {"schema": schema} for kind in kinds}}}
