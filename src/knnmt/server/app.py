"""The application: `create_app(translator)` is an ASGI app, `run` serves it until it is told to stop."""

import asyncio
import contextlib
import logging
import math
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from knnmt import __version__, host
from knnmt.errors import DataError, KnnmtError, StoreError, UsageError
from knnmt.languages import Languages
from knnmt.server import libretranslate, memory, translation
from knnmt.server.access import Doorkeeper, read_keys
from knnmt.server.detection import Pair, languages_of
from knnmt.server.docs import docs_page
from knnmt.server.fields import explained
from knnmt.server.jobs import Jobs
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.shell import FAILED, Shell
from knnmt.server.state import Server, Serving
from knnmt.server.worker import GRACE, UnavailableError, Worker, log_failure
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
HEADERS = ("Authorization", "Content-Type")  # that pages of other origins may send
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Error(BaseModel):
    """What went wrong."""

    error: str


class Answer(JSONResponse):
    """JSON in UTF-8, whatever is in it."""

    def render(self, content: Any) -> bytes:
        """Half a character, which a client may have sent in a name, is no reason to fail."""
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return super().render(content | {"error": content["error"].encode(errors="replace").decode()})


WRONG: dict[int | str, dict[str, Any]] = {
    400: {"model": Error, "description": "Invalid request"},
    403: {"model": Error, "description": "No valid API key, or not allowed here"},
    404: {"model": Error, "description": "Not there"},
    429: {"model": Error, "description": "Slow down"},
    500: {"model": Error, "description": "The server failed"},
    503: {"model": Error, "description": "Too busy, or about to stop: see Retry-After"},
    504: {"model": Error, "description": "It took too long"},
}


def create_app(
    translator: Translator, settings: ServerSettings | None = None, languages: Languages | None = None
) -> FastAPI:
    """An application that serves a translator, which from then on is its own."""
    settings = settings or ServerSettings()
    languages = languages or languages_of(translator)
    metrics = Metrics()
    worker = Worker(translator, settings, metrics)
    jobs = Jobs(translator, worker, metrics, languages)
    keys = read_keys(settings.keys) if settings.keys is not None else []
    server = Server(translator, settings, Pair(languages), worker, Doorkeeper(keys, settings.rate_limit), metrics, jobs)

    @contextlib.asynccontextmanager
    async def living(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        yield
        await anyio.to_thread.run_sync(server.stop)

    app = FastAPI(
        title="knnmt",
        description="Translation that adapts to your own translations at once.",
        version=__version__,
        lifespan=living,
        docs_url=None,
        redoc_url=None,
        responses=WRONG,
        default_response_class=Answer,
    )
    app.state.server = server
    app.include_router(libretranslate.router)
    app.include_router(translation.router)
    app.include_router(memory.router)
    _add_own(app)
    _add_page(app)
    _answer_errors(app)
    app.openapi = lambda: _described(app)  # type: ignore[method-assign]
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=["*"],
            allow_headers=HEADERS,
        )
    app.add_middleware(Shell, settings=settings, metrics=metrics)
    return app


def _add_own(app: FastAPI) -> None:
    """Routes about the server itself."""

    @app.get("/ready", tags=["Server"], response_model=libretranslate.Health)
    async def ready(server: Serving) -> Any:
        """Tell whether the server takes requests, and gets on with them."""
        if not server.worker.ready:
            raise UnavailableError("the server does not take requests, or is stuck with one", 5)
        return {"status": "ready"}

    @app.get("/metrics", tags=["Server"], response_class=Response)
    async def metrics(server: Serving) -> Response:
        """Counts for Prometheus."""
        if server.translator.store is not None:
            server.metrics.memory.set(len(server.translator.store))
        return Response(server.metrics.text(), media_type=PROMETHEUS)


def _add_page(app: FastAPI) -> None:
    """The page, and the interface to read."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(docs_page(app.openapi()))

    if (PAGE / "index.html").is_file():

        @app.get("/", include_in_schema=False)
        async def page() -> FileResponse:
            return FileResponse(PAGE / "index.html")

        app.mount("/page", StaticFiles(directory=PAGE))


def _answer_errors(app: FastAPI) -> None:
    """All errors are {"error": …}."""

    @app.exception_handler(HTTPException)
    async def refused(_: Request, error: HTTPException) -> Answer:
        return Answer({"error": str(error.detail)}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Answer:
        return Answer({"error": f"Invalid request: {explained(error.errors())}"}, 400)

    @app.exception_handler(UnavailableError)
    async def unavailable(_: Request, error: UnavailableError) -> Answer:
        return Answer({"error": str(error)}, 503, {"Retry-After": str(error.retry_after)})

    @app.exception_handler(TimeoutError)
    async def late(request: Request, _: TimeoutError) -> Answer:
        limit = request.app.state.server.settings.time_limit
        return Answer({"error": f"not done within {limit:g} seconds: send less at a time"}, 504)

    @app.exception_handler(KnnmtError)
    async def failed(_: Request, error: KnnmtError) -> Answer:
        if isinstance(error, DataError | UsageError):
            return Answer({"error": str(error)}, 400)
        if isinstance(error, StoreError) and "another process" in str(error):
            return Answer({"error": "another process is writing the store: try again later"}, 503, {"Retry-After": "2"})
        log_failure(_log, error)
        return Answer({"error": FAILED}, 500)


def _described(app: FastAPI) -> dict[str, Any]:
    """OpenAPI, without the 422 that this server never answers."""
    if app.openapi_schema is None:
        schema = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        for methods in schema["paths"].values():
            for about in methods.values():
                about["responses"].pop("422", None)
        for name in ("HTTPValidationError", "ValidationError"):
            schema["components"]["schemas"].pop(name, None)
        app.openapi_schema = schema
    return app.openapi_schema


def listening(settings: ServerSettings) -> socket.socket:
    """The place to listen at, taken."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    taken = socket.socket(family, socket.SOCK_STREAM)
    host.reuse_address(taken)
    try:
        taken.bind((settings.host, settings.port))
    except (OSError, UnicodeError) as error:
        taken.close()
        reason = getattr(error, "strerror", None) or error
        where = f"{settings.host}, port {settings.port}"
        raise UsageError(f"cannot listen at {where} ({reason}): name another (--host, --port)") from None
    return taken


class _Graceful(uvicorn.Server):
    """Tells whoever still waits after `GRACE` seconds that the server stops, rather than to hang up on them."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        server: Server = self.config.app.state.server  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(GRACE, server.abandon)
        await super().shutdown(sockets)


def run(app: FastAPI, place: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT: then take nothing more, finish what can be finished in seconds, and return."""
    config = uvicorn.Config(
        app,
        access_log=False,  # it would log query strings, and addresses
        log_config=None,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(GRACE) + 1,  # then it hangs up on clients that do not come to an end
    )
    # uvicorn sends itself the signal once more when it is done, for whoever handled it before
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _Graceful(config).run(sockets=[place])
