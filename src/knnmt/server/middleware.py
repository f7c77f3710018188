"""Middleware around every request: names and origins, body limits, methods, security headers, the access log, metrics.

Neither log nor metrics contain addresses, keys, or any text of a request, not even the query string.
"""

import asyncio
import ipaddress
import logging
import time
from functools import lru_cache

from fastapi import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from knnmt.server.access import Doorkeeper
from knnmt.server.failures import FAILED, log_failure
from knnmt.server.metrics import Metrics
from knnmt.server.rights import METHODS, methods_of
from knnmt.server.settings import ServerSettings
from knnmt.server.uploads import ENVELOPE

_access_log, _log = logging.getLogger("knnmt.server.access"), logging.getLogger(__name__)
CLOSED = 499  # in the log: the client closed the connection

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
IMPORT, FILES = "/v1/memory/import", ("/v1/files", "/translate_file", "/v2/document")
UPLOAD_PATIENCE = 10  # times the time limit: uploads take longer
WEB = ("http://", "https://", "null")  # origins of web pages; add-ons and desktop applications have other schemes


class GuardMiddleware:
    """The outermost layer of the application."""

    def __init__(self, app: ASGIApp, settings: ServerSettings, metrics: Metrics, doorkeeper: Doorkeeper) -> None:
        self._app, self._settings, self._metrics, self._doorkeeper = app, settings, metrics, doorkeeper
        self._limits = {IMPORT: settings.max_import} | dict.fromkeys(FILES, settings.max_file + ENVELOPE)
        self._local = _local(settings.host) and "*" not in settings.allow_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status, method = time.perf_counter(), 0, scope["method"]
        path = scope["path"]  # a mount changes it
        if method == "HEAD":  # whatever can be got; FastAPI's routes know no HEAD
            scope = {**scope, "method": "GET"}

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                present = {name.lower() for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in HEADERS if pair[0] not in present)]
                if status == 405:
                    message["headers"] = [pair for pair in message["headers"] if pair[0].lower() != b"allow"]
                    message["headers"].append((b"allow", ", ".join(methods_of(path)).encode()))
            elif method == "HEAD":
                message = {**message, "body": b""}
            await send(message)

        headers = dict(scope["headers"])
        try:
            answer = self._refusal(scope, headers) or self._app
            await answer(scope, self._limited(scope, headers, receive), send_with_headers)
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

    def _refusal(self, scope: Scope, headers: dict[bytes, bytes]) -> Response | None:
        """What is answered before the application is asked; None if it is to answer."""
        # every page of a browser on this machine could use a server that is local and has no keys
        exposed = self._local and not self._doorkeeper.needs_key
        if exposed and (name := self._foreign_name(headers)) is not None:
            return _refused(f"{name} is not a name of this server: start it with --allow-host {name}, or with --keys")
        if exposed and (origin := self._foreign_origin(headers)) is not None:
            return _refused(
                f"pages of {origin} may not call this server: start it with --cors {origin}, or with --keys"
            )
        asks = scope["method"] == "OPTIONS" and b"access-control-request-method" not in headers
        if asks and (methods := methods_of(scope["path"])):
            return Response(status_code=204, headers={"Allow": ", ".join(methods)})
        if headers.get(b"content-encoding", b"identity").lower() not in (b"", b"identity"):
            # a compressed body could be of any size
            return JSONResponse({"error": "Content-Encoding is not supported"}, 415, {"Accept-Encoding": "identity"})
        return None

    def _foreign_name(self, headers: dict[bytes, bytes]) -> str | None:
        """The name that a request calls the server by, if a page that points its own name here could have sent it.

        Such a page (DNS rebinding) is of the same origin for a browser. Keys stop it; a server for this machine alone
        that has none answers to its own names only.
        """
        name = _name(headers.get(b"host", b"localhost").decode("latin-1"))
        return None if _local(name) or name in self._settings.allow_host else name

    def _foreign_origin(self, headers: dict[bytes, bytes]) -> str | None:
        """The origin of a request that a page of another site made a browser send.

        The page could not read the answer, unless --cors allows it; but it could keep the machine busy. Browser
        add-ons have origins of their own (moz-extension://…), and are let through.
        """
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin.startswith(WEB) or {origin, "*"} & set(self._settings.cors):
            return None
        authority = origin.partition("://")[2]
        same = authority == headers.get(b"host", b"").decode("latin-1")
        return None if same or _name(authority) in self._settings.allow_host else origin

    def _limited(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Receive:
        """Receive a body, unless it is too large or too slow."""
        settings = self._settings
        uploading = scope["path"] in self._limits and scope["method"] == "POST"
        limit = self._limits[scope["path"]] if uploading else settings.max_body
        length = headers.get(b"content-length", b"")
        size, complete = int(length) if length.isdigit() else 0, False
        received = 0
        until = asyncio.get_running_loop().time() + settings.time_limit * (UPLOAD_PATIENCE if uploading else 1)

        async def receive_limited() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            if size > limit:
                raise _too_large(limit)
            try:
                async with asyncio.timeout_at(until):
                    message = await receive()
            except TimeoutError:
                raise HTTPException(400, "Invalid request: timed out waiting for the body") from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > limit:
                    raise _too_large(limit)
            return message

        return receive_limited


def _refused(reason: str) -> Response:
    return JSONResponse({"error": reason}, 403)


def _name(authority: str) -> str:
    """The name of a host, without its port."""
    name, _, port = authority.rpartition(":")
    return name if port.isdigit() else authority


@lru_cache(maxsize=1024)
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
