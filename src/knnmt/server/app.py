"""The application: `create_app(translator)` makes an ASGI app, `run` serves it until SIGTERM."""

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
from knnmt.server.access import Doorkeeper, read_keys
from knnmt.server.api_reference import api_reference
from knnmt.server.dependencies import Server, Serving
from knnmt.server.detection import Pair, languages_of
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.fields import explained
from knnmt.server.imports import Imports
from knnmt.server.metrics import Metrics
from knnmt.server.middleware import FAILED, GuardMiddleware
from knnmt.server.routes import files, libretranslate, memory, translation
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool, remove_abandoned
from knnmt.server.work_items import UnavailableError, log_failure
from knnmt.server.worker import GRACE, Worker
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
CORS_HEADERS = ("Authorization", "Content-Type")
EXPIRY = 60.0  # seconds between two looks for documents to remove
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Error(BaseModel):
    """An error."""

    error: str


class Answer(JSONResponse):
    """JSON in UTF-8."""

    def render(self, content: Any) -> bytes:
        """Replace lone surrogates that a client sent and an error message quotes."""
        try:
            return super().render(content)
        except UnicodeEncodeError:
            return super().render(content | {"error": content["error"].encode(errors="replace").decode()})


WRONG: dict[int | str, dict[str, Any]] = {
    400: {"model": Error, "description": "Invalid request"},
    403: {"model": Error, "description": "Missing or invalid API key, or not allowed"},
    404: {"model": Error, "description": "Not found"},
    429: {"model": Error, "description": "Rate limit exceeded"},
    500: {"model": Error, "description": "Internal error"},
    503: {"model": Error, "description": "Overloaded or shutting down: see Retry-After"},
    504: {"model": Error, "description": "Timed out"},
}


def create_app(
    translator: Translator, settings: ServerSettings | None = None, languages: Languages | None = None
) -> FastAPI:
    """An application that serves a translator, and owns it from then on."""
    settings = settings or ServerSettings()
    languages = languages or languages_of(translator)
    metrics = Metrics()
    worker = Worker(translator, settings, metrics)
    spool = Spool(settings.disk)
    imports = Imports(translator, worker, metrics, languages)
    documents = DocumentJobs(worker, settings, languages, spool)
    doorkeeper = Doorkeeper(read_keys(settings.keys) if settings.keys is not None else [], settings.rate_limit)
    server = Server(translator, settings, Pair(languages), worker, doorkeeper, metrics, imports, documents, spool)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        await anyio.to_thread.run_sync(remove_abandoned)
        expiry = asyncio.create_task(_expire(documents, settings.file_lifetime))
        yield
        expiry.cancel()
        await anyio.to_thread.run_sync(server.stop)

    app = FastAPI(
        title="knnmt",
        description="Machine translation that adapts to your own translations at once.",
        version=__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        responses=WRONG,
        default_response_class=Answer,
    )
    app.state.server = server
    app.include_router(libretranslate.router)
    app.include_router(files.libretranslate)
    app.include_router(translation.router)
    app.include_router(files.router)
    app.include_router(memory.router)
    _add_monitoring(app)
    _add_page(app)
    _add_error_handlers(app)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=["*"],
            allow_headers=CORS_HEADERS,
        )
    app.add_middleware(GuardMiddleware, settings=settings, metrics=metrics)
    return app


async def _expire(documents: DocumentJobs, lifetime: float) -> None:
    """Remove old documents, also while nobody asks."""
    while True:
        await asyncio.sleep(min(EXPIRY, lifetime))
        documents.expire()


def _add_monitoring(app: FastAPI) -> None:
    """Add the routes for probes and Prometheus."""

    @app.get("/ready", tags=["Server"], response_model=libretranslate.Health)
    async def ready(server: Serving) -> Any:
        """Report whether the server accepts requests and makes progress."""
        if not server.worker.ready:
            raise UnavailableError("the server is shutting down, or the model is stuck", 5)
        return {"status": "ready"}

    @app.get("/metrics", tags=["Server"], response_class=Response)
    async def metrics(server: Serving) -> Response:
        """Metrics for Prometheus."""
        if server.translator.store is not None:
            server.metrics.memory.set(len(server.translator.store))
        return Response(server.metrics.text(), media_type=PROMETHEUS)


def _add_page(app: FastAPI) -> None:
    """Add the page and the API reference."""

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_reference(app.openapi()))

    if (PAGE / "index.html").is_file():

        @app.get("/", include_in_schema=False)
        async def page() -> FileResponse:
            return FileResponse(PAGE / "index.html")

        app.mount("/page", StaticFiles(directory=PAGE))


def _add_error_handlers(app: FastAPI) -> None:
    """Answer every error with {"error": …}."""

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
        return Answer({"error": f"timed out after {limit:g} seconds: send less text at a time"}, 504)

    @app.exception_handler(KnnmtError)
    async def failed(_: Request, error: KnnmtError) -> Answer:
        if isinstance(error, DataError | UsageError):
            return Answer({"error": str(error)}, 400)
        if isinstance(error, StoreError) and "another process" in str(error):
            return Answer(
                {"error": "another process is writing to the store: try again later"}, 503, {"Retry-After": "2"}
            )
        log_failure(_log, error)
        return Answer({"error": FAILED}, 500)


def _openapi(app: FastAPI) -> dict[str, Any]:
    """The OpenAPI schema, without FastAPI's 422: validation errors are 400 here."""
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
    """A socket bound to the server's address."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    host.reuse_address(bound)
    try:
        bound.bind((settings.host, settings.port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        where = f"{settings.host}, port {settings.port}"
        raise UsageError(f"cannot listen on {where} ({reason}): choose another --host or --port") from None
    return bound


class _GracefulServer(uvicorn.Server):
    """Answers 503 to requests that are still waiting after `GRACE` seconds, instead of hanging up."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        server: Server = self.config.app.state.server  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(GRACE, server.abandon)
        await super().shutdown(sockets)


def run(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then refuse new requests, finish what can be finished in seconds, and return."""
    config = uvicorn.Config(
        app,
        access_log=False,  # it would log addresses and query strings
        log_config=None,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=math.ceil(GRACE) + 1,  # then uvicorn hangs up
    )
    # uvicorn raises the signal again when it is done, for the handler that was there before
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    _GracefulServer(config).run(sockets=[bound])
