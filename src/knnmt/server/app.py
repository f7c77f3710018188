"""The application: `create_app(translator)` makes an ASGI app; `knnmt.server.listener` serves it."""

import asyncio
import contextlib
import errno
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, Response
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from knnmt import __version__
from knnmt.errors import DataError, KnnmtError, StoreError, UsageError
from knnmt.languages import Languages
from knnmt.server.access import Doorkeeper, read_keys
from knnmt.server.api_reference import api_reference
from knnmt.server.dependencies import Server, Serving, known
from knnmt.server.desks import Desks
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.fields import explained
from knnmt.server.imports import Imports
from knnmt.server.metrics import Metrics
from knnmt.server.middleware import FAILED, GuardMiddleware
from knnmt.server.routes import callers, files, libretranslate, memory, translation
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool, remove_abandoned
from knnmt.server.work_items import UnavailableError, log_failure
from knnmt.server.worker import Worker
from knnmt.text.glossary import Glossary
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
CORS_HEADERS = ("Authorization", "Content-Type")
NO_ROOM = {errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM}  # of a disk
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
    translator: Translator,
    settings: ServerSettings | None = None,
    languages: Languages | None = None,
    glossary: Glossary | None = None,
) -> FastAPI:
    """An application that serves a translator, and owns it from then on; `glossary` is for all requests."""
    settings = settings or ServerSettings()
    desks = Desks.of(translator, languages, glossary)
    metrics = Metrics()
    worker = Worker(settings, metrics)
    spool = Spool(settings.disk)
    imports = Imports(worker, metrics)
    documents = DocumentJobs(worker, settings, spool)
    doorkeeper = Doorkeeper(read_keys(settings.keys) if settings.keys is not None else [], settings.rate_limit)
    server = Server(desks, settings, worker, doorkeeper, metrics, imports, documents, spool)

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
        openapi_url=None,
        responses=WRONG,
        default_response_class=Answer,
    )
    app.state.server = server
    app.include_router(libretranslate.router)
    app.include_router(files.libretranslate)
    app.include_router(translation.router)
    app.include_router(files.router)
    app.include_router(memory.router)
    app.include_router(memory.jobs)
    app.include_router(callers.router)
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

    @app.get("/metrics", tags=["Server"], response_class=Response, dependencies=[Depends(known)])
    async def metrics(server: Serving) -> Response:
        """Metrics for Prometheus. It sends a key as its `authorization`, if the server requires one."""
        server.metrics.memory.set(sum(len(memory.store) for memory in server.desks.memories.values()))
        return Response(server.metrics.text(), media_type=PROMETHEUS)


def _add_page(app: FastAPI) -> None:
    """Add the page and the API reference."""

    @app.get("/docs", include_in_schema=False, dependencies=[Depends(known)])
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_reference(app.openapi()))

    @app.get("/openapi.json", include_in_schema=False, dependencies=[Depends(known)])
    @app.get("/spec", include_in_schema=False, dependencies=[Depends(known)])  # where LibreTranslate has it
    async def openapi() -> Answer:
        return Answer(app.openapi())

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

    @app.exception_handler(OSError)
    async def unwritable(_: Request, error: OSError) -> Answer:
        if error.errno in NO_ROOM:
            _log.error("cannot write to the disk: %s", error.strerror)
            return Answer(
                {"error": f"the server cannot write to its disk: {error.strerror}"}, 503, {"Retry-After": "60"}
            )
        log_failure(_log, error)
        return Answer({"error": FAILED}, 500)

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
