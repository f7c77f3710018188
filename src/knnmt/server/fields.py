"""The fields of a request, sent as JSON, as a form, or in the query string."""

import json
import re
from collections.abc import Collection, Iterable
from typing import Annotated, Any, TypeVar
from urllib.parse import parse_qsl

from fastapi import HTTPException, Request
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    StrictBool,
    ValidationError,
    WithJsonSchema,
    model_validator,
)

Model = TypeVar("Model", bound=BaseModel)
MAX_FIELDS = 64  # of a form
NO_FIELDS = frozenset({"body", "query", "path", "str", "int", "float", "bool"})  # other parts of pydantic's `loc`
SECRET = frozenset({"api_key"})  # what an address must not contain: it ends up in logs
_NAME = re.compile("^[ -~]+$")  # printable ASCII: names of a form's fields stand in headers
NAMES = {"propertyNames": {"pattern": _NAME.pattern}}
WRITTEN = r"[^\s\x1c-\x1f\x85]"  # more than white space, whatever an engine of regular expressions takes for that
LANGUAGE = "x-language"  # mark of a field that is a language of the server; `description` fills it in
MISSING = ("missing", "string_too_short", "too_short")
FLAGS: dict[Any, bool] = {"0": False, "1": True, "false": False, "true": True}


Flag = Annotated[
    StrictBool,
    BeforeValidator(lambda given: FLAGS.get(given, given) if isinstance(given, str) else given),
    WithJsonSchema({"enum": [False, True, *FLAGS]}),
]
"""Yes or no, in JSON or as the text of a form."""


class JsonBody(BaseModel):
    """A body of JSON: no other fields, no text or truth value for a number. 5.0 is a whole number, as JSON has no
    other kind."""

    model_config = ConfigDict(extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _whole(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        return {
            name: int(value) if isinstance(value, float) and value.is_integer() else value
            for name, value in given.items()
        }


async def fields(request: Request, model: type[Model]) -> Model:
    """Parse and validate the fields of a request; 400 if they are invalid."""
    return validated(model, await given_fields(request))


async def given_fields(request: Request, repeated: Collection[str] = ()) -> dict[str, Any]:
    """The fields of a request as they were sent; those `repeated` are lists in a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "application/json" or kind.endswith("+json"):
        return _json(await request.body())
    pairs = await _multipart(request) if kind == "multipart/form-data" else _form(await request.body(), kind)
    pairs += [(name, value) for name, value in request.query_params.multi_items() if name not in SECRET]
    return _gathered(pairs, repeated)


def validated(model: type[Model], given: dict[str, Any]) -> Model:
    """The fields of a request; 400 if they are invalid. An empty field counts as missing; so does an empty list where
    one is required, as LibreTranslate has it."""
    required = {name for name, field in model.model_fields.items() if field.is_required()}
    sent = {name: value for name, value in given.items() if value not in (None, "")}
    try:
        return model.model_validate(
            {name: value for name, value in sent.items() if value != [] or name not in required}
        )
    except ValidationError as error:
        raise HTTPException(400, f"Invalid request: {explained(error.errors(include_url=False))}") from None


def explained(errors: Any) -> str:
    """The first validation error, in words."""
    first = errors[0]
    name = _path(first["loc"])
    if first["type"] in MISSING:
        return f"missing {name} parameter"
    if first["type"] == "string_unicode":
        return f"{name} contains a lone surrogate"
    if first["type"].startswith(("int_", "float_")):
        return f"{name} parameter is not a number"
    return f"{name}: {first['msg'].removeprefix('Value error, ')}"


def _path(place: tuple[str | int, ...]) -> str:
    """A field by pydantic's `loc`, such as `q`, or `glossary[3].source` of a list of objects."""
    path, index = "", ""
    for part in place:
        if isinstance(part, int):
            index = f"[{part}]"
        elif part.isidentifier() and part.islower() and part not in NO_FIELDS:
            path = f"{path}{index}.{part}" if path else part
    return path or "body"


def _json(body: bytes) -> dict[str, Any]:
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict):
        raise HTTPException(400, "Invalid JSON format")
    return given


def _form(body: bytes, kind: str) -> list[tuple[str, str]]:
    if kind not in ("", "application/x-www-form-urlencoded"):
        return []
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError:
        raise HTTPException(400, "Invalid request: form not UTF-8, or too many fields") from None


async def _multipart(request: Request) -> list[tuple[str, str]]:
    try:
        async with request.form(max_files=0, max_fields=MAX_FIELDS, max_part_size=1 << 30) as form:
            return [(name, value) for name, value in form.multi_items() if isinstance(value, str)]
    except HTTPException:
        raise
    except Exception:  # the parser raises many kinds of errors
        raise HTTPException(400, "Invalid request: malformed form") from None


def check_names(names: Iterable[str]) -> None:
    """Refuse names of a form's fields that are not printable ASCII: parsers disagree on them."""
    if not all(_NAME.fullmatch(name) for name in names):
        raise HTTPException(400, "Invalid request: field names must be printable ASCII")


def _gathered(pairs: list[tuple[str, str]], repeated: Collection[str]) -> dict[str, Any]:
    """The first value of each field, or all of those that may be repeated; line ends become line feeds."""
    check_names(name for name, _ in pairs)
    given: dict[str, Any] = {}
    for name, value in pairs:
        text = value.replace("\r\n", "\n").replace("\r", "\n")
        if name in repeated:
            given.setdefault(name, []).append(text)
        else:
            given.setdefault(name, text)
    return given


def body_schema(model: type[BaseModel], repeated: Collection[str] = ()) -> dict[str, Any]:
    """The OpenAPI description of a request body. In JSON, null is as if an optional field were not there; in a form,
    only those `repeated` are lists."""
    schema = schema_of(model)
    single = {name: each if name in repeated else _single(each) for name, each in schema["properties"].items()}
    form = schema | {"properties": single} | NAMES
    forms = ("application/x-www-form-urlencoded", "multipart/form-data")
    content = {"application/json": {"schema": _nullable(schema)}} | {kind: {"schema": form} for kind in forms}
    return {"requestBody": {"required": True, "content": content}}


def form_with_file(schema: dict[str, Any], name: str, example: str) -> dict[str, Any]:
    """The OpenAPI description of a form with a file: `schema` is that of its other fields."""
    file = {"type": "string", "format": "binary", "minLength": 1, "examples": [example]}
    disposition = {"schema": {"type": "string"}, "example": f'form-data; name="file"; filename="{name}"'}
    whole = schema | {"properties": {"file": file} | schema["properties"]} | NAMES
    encoding = {"file": {"headers": {"Content-Disposition": disposition}}}
    return {"multipart/form-data": {"schema": whole, "encoding": encoding}}


def _single(field: dict[str, Any]) -> dict[str, Any]:
    """A field that may be a list, without that."""
    kinds = [kind for kind in field.get("anyOf", ()) if kind.get("type") != "array"]
    return {name: each for name, each in field.items() if name != "anyOf"} | kinds[0] if len(kinds) == 1 else field


def _nullable(schema: dict[str, Any]) -> dict[str, Any]:
    required, properties = schema.get("required", []), {}
    for name, each in schema["properties"].items():
        kind = {key: value for key, value in each.items() if key != "description"}
        described = {"description": each["description"]} if "description" in each else {}
        properties[name] = each if name in required else described | {"anyOf": [kind, {"type": "null"}]}
    return schema | {"properties": properties}


def schema_of(model: type[BaseModel]) -> dict[str, Any]:
    """The JSON schema of a model as a form has it: without null, and without references, which would point to another
    place in OpenAPI's document. What may be missing may be empty (see `validated`)."""
    schema = model.model_json_schema()
    parts: dict[str, Any] = schema.pop("$defs", {})

    def inlined(part: Any) -> Any:
        if isinstance(part, list):
            return [inlined(each) for each in part]
        if not isinstance(part, dict):
            return part
        if "$ref" in part:
            return inlined(parts[part["$ref"].rpartition("/")[2]])
        kinds = [kind for kind in part.get("anyOf", []) if kind != {"type": "null"}]
        if len(kinds) == 1:
            return inlined({name: each for name, each in part.items() if name != "anyOf"} | kinds[0])
        return {name: inlined(each) for name, each in part.items()}

    whole: dict[str, Any] = inlined(schema)
    for name in whole["properties"].keys() - set(whole.get("required", ())):
        field = whole["properties"][name]
        if "enum" in field:
            field["enum"] = [*field["enum"], ""]
        if LANGUAGE in field:
            field[LANGUAGE] = field[LANGUAGE] | {"empty": True}
    return whole
