"""Middleware around every request: body limits, security headers, the access log, metrics.

Neither log nor metrics contain addresses, keys, or any text of a request, not even the query string.
"""

import asyncio
import ipaddress
import logging
import time

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.server.access import Doorkeeper
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.uploads import ENVELOPE
from knnmt.server.work_items import log_failure

_access_log, _log = logging.getLogger("knnmt.server.access"), logging.getLogger(__name__)
CLOSED = 499  # in the log: the client closed the connection
FAILED = "internal error; see the server's log"

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
IMPORT, FILES = "/v1/memory/import", ("/v1/files", "/translate_file")
UPLOAD_PATIENCE = 10  # times the time limit: uploads take longer
METHODS = frozenset({"GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS"})


class GuardMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics, doorkeeper: Doorkeeper) -> None:
        self._app, self._settings, self._metrics, self._doorkeeper = app, settings, metrics, doorkeeper

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, method = time.perf_counter(), 0, scope["method"]
        if method == "HEAD":  # whatever can be got; FastAPI's routes know no HEAD
            scope = {**scope, "method": "GET"}

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in present)]
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        try:
            if (name := self._foreign(scope)) is not None:
                refused = f"{name} is not a name of this server: start it with --allow-host {name}, or with --keys"
                await JSONResponse({"error": refused}, 403)(scope, receive, send_with_headers)
            else:
                await self._app(scope, self._limited(scope, receive), send_with_headers)
        except ClientDisconnect:  # in the middle of a body
            status = CLOSED
        except Exception as error:  # uvicorn would log the message too, which may contain text of the request
            log_failure(_log, error)
            if not status:
                await JSONResponse({"error": FAILED}, 500)(scope, receive, send_with_headers)
        finally:
            seconds = time.perf_counter() - started
            route, method = _route(scope), method if method in METHODS else "other"
            self._metrics.requests.labels(method, route, str(status)).inc()
            self._metrics.seconds.labels(route).observe(seconds)
            _access_log.info("%s %s %d %.0f ms", method, route, status, 1000 * seconds)

    def _foreign(self, scope: Scope) -> str | None:
        """The name that a request calls the server by, if a page that points its own name here could have sent it.

        Such a page (DNS rebinding) is of the same origin for a browser. Keys stop it; a server for this machine alone
        that has none answers to its own names only.
        """
        if self._doorkeeper.needs_key or not _local(self._settings.host) or "*" in self._settings.allow_host:
            return None
        given = dict(scope["headers"]).get(b"host", b"localhost").decode("latin-1")
        name = given.rpartition(":")[0] if given.rpartition(":")[2].isdigit() else given
        return None if _local(name) or name in self._settings.allow_host else name

    def _limited(self, scope: Scope, receive: Receive) -> Receive:
        """Receive a body, unless it is too large or too slow."""
        settings = self._settings
        limits = {IMPORT: settings.max_import} | dict.fromkeys(FILES, settings.max_file + ENVELOPE)
        uploading = scope["path"] in limits and scope["method"] == "POST"
        limit = limits[scope["path"]] if uploading else settings.max_body
        length = dict(scope["headers"]).get(b"content-length", b"")
        size, complete = int(length) if length.isdigit() else 0, False
        received = 0
        until = time.monotonic() + settings.time_limit * (UPLOAD_PATIENCE if uploading else 1)

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            if size > limit:
                raise _too_large(limit)
            try:
                message = await asyncio.wait_for(receive(), until - time.monotonic())
            except TimeoutError:
                raise HTTPException(400, "Invalid request: timed out waiting for the body") from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > limit:
                    raise _too_large(limit)
            return message

        return receive_limited


def _local(name: str) -> bool:
    """Whether a name or an address is that of this machine, for itself."""
    if name.lower() == "localhost" or name.lower().endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False


def _too_large(limit: int) -> HTTPException:
    return HTTPException(400, f"Invalid request: the body is larger than {limit} bytes", {"Connection": "close"})


def _route(scope: Scope) -> str:
    """The path pattern of the route: a fixed set of labels, whatever clients send."""
    route = scope.get("route")
    if (path := getattr(route, "path", None)) is not None:
        return str(path)
    return "/page" if scope["path"].startswith("/page/") else "other"
