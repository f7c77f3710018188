"""What a request must satisfy whoever sends it: size, valid Unicode, origin."""

import re

from fastapi import HTTPException, Request

from knnmt.server.settings import ServerSettings

_SURROGATE = re.compile("[\ud800-\udfff]")


class RequestChecks:
    """Refuses requests that are too large, or that a page of another origin sends."""

    def __init__(self, settings: ServerSettings) -> None:
        self._settings = settings

    def size(self, texts: list[str]) -> None:
        """Refuse requests over the size limits, and texts that are not valid Unicode."""
        most, characters = self._settings.max_characters, sum(map(len, texts))
        if characters > most:
            raise HTTPException(400, _exceeds(characters, most, "characters"))
        self.segments(sum(text.count("\n") + 1 for text in texts))
        if any(_SURROGATE.search(text) for text in texts):
            raise HTTPException(400, "Invalid request: the text contains a lone surrogate")

    def segments(self, segments: int) -> None:
        """Refuse requests of too many segments: lines of text, or blocks of HTML."""
        if segments > self._settings.max_segments:
            raise HTTPException(400, _exceeds(segments, self._settings.max_segments, "segments"))

    def origin(self, request: Request, what: str) -> None:
        """Refuse what a page of another origin could make a browser send without being allowed to (CSRF)."""
        origin = request.headers.get("origin")
        known = {f"{scheme}://{request.headers.get('host', '')}" for scheme in ("http", "https")}
        if origin is not None and origin not in known and not {origin, "*"} & set(self._settings.cors):
            raise HTTPException(403, f"pages of other origins may not {what} this server (see --cors)")


def _exceeds(size: int, limit: int, what: str) -> str:
    return f"Invalid request: request ({size}) exceeds text limit ({limit}) of {what}"
