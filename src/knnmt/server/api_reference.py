"""The API reference: an HTML page made from the OpenAPI schema, without scripts or external resources."""

import json
from html import escape
from typing import Any


def api_reference(schema: dict[str, Any]) -> str:
    """An HTML page that lists all routes by group."""
    groups: dict[str, list[str]] = {}
    for path, methods in schema["paths"].items():
        for method, about in methods.items():
            group = (about.get("tags") or ["Server"])[0]
            groups.setdefault(group, []).append(_route(path, method, about, schema))
    parts = [f"<h2>{escape(name)}</h2>{''.join(routes)}" for name, routes in groups.items()]
    title = escape(schema["info"]["title"])
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title} API</title>'
        '<meta name="viewport" content="width=device-width"><link rel="stylesheet" href="/page/style.css"></head>'
        f"<body><main><h1>{title} API</h1><p>{escape(schema['info'].get('description', ''))} "
        f'Machine-readable: <a href="/openapi.json">openapi.json</a>.</p>{"".join(parts)}</main></body></html>'
    )


def _route(path: str, method: str, about: dict[str, Any], schema: dict[str, Any]) -> str:
    rows = [(each["name"], each.get("description", ""), each["schema"]) for each in about.get("parameters", [])]
    body = about.get("requestBody", {}).get("content", {})
    for kind in list(body)[:1]:
        fields = _resolved(body[kind]["schema"], schema)
        needed = fields.get("required", [])
        for name, each in fields.get("properties", {}).items():
            rows.append((name + (" *" if name in needed else ""), each.get("description", ""), each))
    table = "".join(
        f"<tr><td><code>{escape(name)}</code></td><td>{escape(_kind(each))}</td><td>{escape(what)}</td></tr>"
        for name, what, each in rows
    )
    kinds = f"<p>Body: {escape(', '.join(body))}</p>" if body else ""
    codes = ", ".join(f"{code} {each.get('description', '')}" for code, each in about.get("responses", {}).items())
    return (
        f"<section><h3><code>{escape(method.upper())} {escape(path)}</code></h3>"
        f"<p>{escape(about.get('description', ''))}</p>{kinds}"
        + (f"<table>{table}</table>" if table else "")
        + f"<p>Responses: {escape(codes)}</p></section>"
    )


def _resolved(part: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    """Follow references; of alternatives take the first."""
    while "$ref" in part or "anyOf" in part:
        part = part["anyOf"][0] if "anyOf" in part else schema["components"]["schemas"][part["$ref"].rpartition("/")[2]]
    return part


def _kind(part: dict[str, Any]) -> str:
    if "anyOf" in part:
        return " or ".join(_kind(each) for each in part["anyOf"] if each.get("type") != "null")
    if "enum" in part:
        return " | ".join(json.dumps(value) for value in part["enum"])
    inner = f" of {_kind(part['items'])}" if "items" in part else ""
    return str(part.get("type", part.get("$ref", "").rpartition("/")[2])) + inner
