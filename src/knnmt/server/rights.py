"""Who may call which route: the one table of it. `Server.caller` enforces it; every route of the application is here.

A role is the least that a caller needs at all. Which memories it holds for is checked where a memory is named: one that
a caller may not use is answered as one that does not exist.
"""

import re
from functools import lru_cache
from typing import Literal

from starlette.requests import Request
from starlette.routing import compile_path

from knnmt.server.people import Role

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Needed = Role | Literal["open"]
"""A role, or `open`: the route needs no key."""

RIGHTS: dict[tuple[str, str], Needed] = {
    # what a client must know before it has a key, and what a probe asks
    ("GET", "/"): "open",
    ("GET", "/page/{file:path}"): "open",
    ("GET", "/health"): "open",
    ("GET", "/ready"): "open",
    ("GET", "/languages"): "open",
    ("GET", "/frontend/settings"): "open",
    # LibreTranslate's
    ("POST", "/translate"): "translate",
    ("POST", "/detect"): "translate",
    ("POST", "/suggest"): "translate",  # queued for review, without the right to teach
    ("POST", "/translate_file"): "translate",
    ("GET", "/download_file/{name}"): "translate",  # one's own
    # ours
    ("GET", "/v1/me"): "translate",
    ("GET", "/v1/memories"): "translate",
    ("POST", "/v1/translate"): "translate",
    ("GET", "/v1/systems"): "translate",
    ("POST", "/v1/files"): "translate",
    ("GET", "/v1/files/{id}"): "translate",  # one's own
    ("GET", "/v1/files/{id}/result"): "translate",
    ("DELETE", "/v1/files/{id}"): "translate",
    ("GET", "/v1/memory"): "translate",
    ("POST", "/v1/memory/search"): "translate",
    ("GET", "/v1/memory/export"): "translate",
    ("POST", "/v1/memory"): "translate",  # queued for review, without the right to teach
    ("PUT", "/v1/memory/{id:segment}"): "translate",  # the same
    ("DELETE", "/v1/memory/{id:segment}"): "teach",
    ("POST", "/v1/memory/import"): "teach",
    ("GET", "/v1/jobs/{id}"): "translate",  # one's own
    ("GET", "/v1/review"): "translate",  # one's own, and those of memories that one reviews
    ("POST", "/v1/review/{id}/accept"): "review",
    ("POST", "/v1/review/{id}/reject"): "translate",  # the same
    ("GET", "/v1/audit"): "admin",
    ("POST", "/v1/reload"): "admin",
    ("GET", "/v1/matches"): "translate",
    ("POST", "/v1/matches"): "translate",
    # amaGama's
    ("GET", "/tmserver/languages/"): "open",
    ("GET", "/tmserver/{source}/{target}/unit/{text:path}"): "translate",
    # DeepL's; documents and glossaries are one's own
    ("POST", "/v2/translate"): "translate",
    ("GET", "/v2/languages"): "translate",
    ("GET", "/v2/usage"): "translate",
    ("POST", "/v2/document"): "translate",
    ("POST", "/v2/document/{id}"): "translate",
    ("POST", "/v2/document/{id}/result"): "translate",
    ("GET", "/v2/glossary-language-pairs"): "translate",
    ("GET", "/v2/glossaries"): "translate",
    ("POST", "/v2/glossaries"): "translate",
    ("GET", "/v2/glossaries/{id}"): "translate",
    ("GET", "/v2/glossaries/{id}/entries"): "translate",
    ("DELETE", "/v2/glossaries/{id}"): "translate",
    ("GET", "/v3/glossaries"): "translate",
    ("POST", "/v3/glossaries"): "translate",
    ("GET", "/v3/glossaries/{id}"): "translate",
    ("GET", "/v3/glossaries/{id}/entries"): "translate",
    ("PATCH", "/v3/glossaries/{id}"): "translate",
    ("PUT", "/v3/glossaries/{id}/dictionaries"): "translate",
    ("DELETE", "/v3/glossaries/{id}/dictionaries"): "translate",
    ("DELETE", "/v3/glossaries/{id}"): "translate",
    # for operators and programmers
    ("GET", "/metrics"): "translate",
    ("GET", "/docs"): "translate",
    ("GET", "/openapi.json"): "translate",
    ("GET", "/spec"): "translate",
}


def needed(request: Request) -> Needed:
    """What the route of a request needs; an unlisted one needs an administrator."""
    path = getattr(request.scope.get("route"), "path", "")
    return RIGHTS.get((request.method, path), "admin")


def methods_of(path: str) -> list[str]:
    """The methods that a path has, for `Allow`; none if there is no such path.

    `/v1/memory/export` is a path of its own, although a segment could have that id.
    """
    found = next((methods for pattern, methods in _patterns() if pattern.match(path)), None)
    if found is None:
        return []
    found = found | {"OPTIONS"} | ({"HEAD"} if "GET" in found else set())
    return [method for method in METHODS if method in found]


@lru_cache(maxsize=1)
def _patterns() -> list[tuple[re.Pattern[str], set[str]]]:
    """The patterns of all paths, those without a variable first, and the methods of each."""
    paths = sorted(dict.fromkeys(path for _, path in RIGHTS), key=lambda path: "{" in path)
    return [(compile_path(path)[0], {method for method, each in RIGHTS if each == path}) for path in paths]
