"""What goes around every request: limits on its body, headers of its answer, a line in the log, a count.

Neither the log nor the counts have addresses, keys, or anything of what was asked: not even the query string.
"""

import asyncio
import logging
import time

from fastapi import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.worker import log_failure

_log, _faults = logging.getLogger("knnmt.server.access"), logging.getLogger(__name__)
FAILED = "the server could not do this; its log says where"

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = [
    (b"content-security-policy", POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cache-control", b"no-cache"),
]
IMPORT, IMPORT_TIMES = "/v1/memory/import", 10


class Shell:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics) -> None:
        self._app, self._settings, self._metrics = app, settings, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        begun, status = time.perf_counter(), 0

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in present)]
            await send(message)

        try:
            await self._app(scope, self._limited(scope, receive), sending)
        except Exception as error:  # caught here, since whoever logs it further out logs its message too
            log_failure(_faults, error)
            if not status:
                await JSONResponse({"error": FAILED}, 500)(scope, receive, sending)
        finally:
            seconds = time.perf_counter() - begun
            route, method = _route(scope), scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            _log.info("%s %s %d %.0f ms", method, route, status, 1000 * seconds)

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Receive a body that is neither too large nor too slow."""
        settings = self._settings
        most = settings.max_import if scope["path"] == IMPORT else settings.max_body
        length = dict(scope["headers"]).get(b"content-length", b"")
        size, whole = int(length) if length.isdigit() else 0, False
        received = 0
        # a large file may take longer to come
        until = time.monotonic() + settings.time_limit * (IMPORT_TIMES if scope["path"] == IMPORT else 1)

        async def receiving() -> Message:
            nonlocal received, whole
            if whole:
                return await receive()
            if size > most:
                raise _too_large(most)
            try:
                message = await asyncio.wait_for(receive(), until - time.monotonic())
            except TimeoutError:
                raise HTTPException(400, "Invalid request: its body did not come in time") from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                whole = not message.get("more_body", False)
                if received > most:
                    raise _too_large(most)
            return message

        return receiving


METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"})


def _too_large(most: int) -> HTTPException:
    return HTTPException(400, f"Invalid request: its body is larger than {most} bytes", {"Connection": "close"})


def _route(scope: Scope) -> str:
    """The route as the code spells it: a set of names that no client can add to."""
    route = scope.get("route")
    if (path := getattr(route, "path", None)) is not None:
        return str(path)
    return "/page" if scope["path"].startswith("/page/") else "other"
