"""The application: `create_app(translator)` makes an ASGI app; `knnmt.server.listener` serves it."""

import asyncio
import contextlib
import logging
import signal
import threading
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI, Request
from fastapi.exceptions import RequestValidationError
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
from knnmt.server.caller_glossaries import CallerGlossaries
from knnmt.server.checks import RequestChecks
from knnmt.server.config import ServerConfig, keys_of, read_config
from knnmt.server.dependencies import Serving, known
from knnmt.server.description import openapi
from knnmt.server.desks import Desks, NoPairError
from knnmt.server.document_jobs import DocumentJobs
from knnmt.server.failures import FAILED, log_failure, unwritable
from knnmt.server.fields import explained
from knnmt.server.imports import Imports
from knnmt.server.match_index import MatchIndex
from knnmt.server.metrics import Metrics
from knnmt.server.middleware import GuardMiddleware
from knnmt.server.model_pool import ModelPool
from knnmt.server.opening import open_desks
from knnmt.server.people import ANYONE, READER, Caller, Key
from knnmt.server.reloading import Reloader
from knnmt.server.routes import (
    admin,
    callers,
    deepl,
    deepl_documents,
    deepl_glossaries,
    files,
    libretranslate,
    matches,
    memory,
    review,
    translation,
)
from knnmt.server.server import Server
from knnmt.server.settings import ServerSettings
from knnmt.server.spool import Spool, remove_abandoned
from knnmt.server.state import State
from knnmt.server.teaching import Teaching
from knnmt.server.work_items import UnavailableError
from knnmt.server.worker import Worker
from knnmt.text.glossary import Glossary
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
PAGE = Path(__file__).parent / "page"
CORS_HEADERS = ("Authorization", "Content-Type")
OPERATOR = Caller("(signal)", "admin")  # who sends SIGHUP
EXPIRY = 60.0  # seconds between two looks for documents to remove
OWN = ("/v1/", "/tmserver/")  # where languages that the server does not translate are not found
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


class Readiness(BaseModel):
    """Ready; `loading` is a model that is being loaded for those who asked for it."""

    status: str
    loading: str | None = None


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
    state: Path | None = None,
) -> FastAPI:
    """An application that serves a translator, and owns it from then on; `glossary` is for all requests."""
    settings = settings or ServerSettings()
    keys = read_keys(settings.keys) if settings.keys is not None else []
    return create_app_of(Desks.of(translator, languages, glossary), settings, keys, state)


def create_team_app(config: ServerConfig, path: Path | None = None, pool: ModelPool | None = None) -> FastAPI:
    """An application that serves the pairs and memories of a configuration, which can be read again from its file."""
    pool = pool or ModelPool()
    pool.budget = config.memory
    app = create_app_of(open_desks(config, pool), config.server, keys_of(config, config.server.keys), config.state)
    server: Server = app.state.server
    server.pool, server.teaching.suggestions = pool, config.suggestions
    if path is not None:  # options may have overridden its settings
        app.state.reloader = Reloader(server, path, read_config(path).server)
    return app


def create_app_of(desks: Desks, settings: ServerSettings, keys: Sequence[Key], state: Path | None = None) -> FastAPI:
    """An application that serves some desks to whoever has one of the keys, or to anyone if there are none."""
    metrics = Metrics()
    worker = Worker(settings, metrics)
    spool = Spool(settings.disk)
    documents = DocumentJobs(worker, settings, spool)
    doorkeeper = Doorkeeper(keys, settings.rate_limit, ANYONE if settings.teach else READER)
    opened = None if state is None else State(state)
    imports = Imports(worker, metrics)
    checks, teaching = RequestChecks(settings), Teaching(settings, worker, metrics, opened)
    server = Server(
        desks, settings, worker, doorkeeper, metrics, imports, documents, spool, checks, teaching, opened
    )  # fmt: skip

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        worker.start()
        await anyio.to_thread.run_sync(remove_abandoned)
        expiry = asyncio.create_task(_expire(documents, settings.file_lifetime))
        with _reload_on_hangup(app):
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
    app.state.reloader = Reloader(server)
    app.state.glossaries = CallerGlossaries() if server.state is None else server.state.glossaries
    app.state.characters = Counter[str | None]()  # that callers sent to DeepL's API
    app.state.matches = MatchIndex()
    app.include_router(libretranslate.router)
    app.include_router(files.libretranslate)
    for router in (deepl.router, deepl_documents.router, deepl_glossaries.second, deepl_glossaries.third):
        app.include_router(router)
    app.include_router(matches.router)
    app.include_router(matches.tmserver)
    app.include_router(translation.router)
    app.include_router(files.router)
    app.include_router(memory.router)
    app.include_router(memory.jobs)
    app.include_router(callers.router)
    app.include_router(review.router)
    app.include_router(admin.router)
    _add_monitoring(app)
    _add_page(app)
    _add_error_handlers(app)
    app.openapi = lambda: openapi(app, server.pairs(), settings)  # type: ignore[method-assign]
    if settings.cors:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.cors,
            allow_methods=["*"],
            allow_headers=CORS_HEADERS,
        )
    app.add_middleware(GuardMiddleware, settings=settings, metrics=metrics, doorkeeper=doorkeeper)
    return app


@contextlib.contextmanager
def _reload_on_hangup(app: FastAPI) -> Iterator[None]:
    """Reload on SIGHUP, where there is one and this is the main thread."""
    running: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            reloader: Reloader = app.state.reloader
            waiting = await reloader.reload(OPERATOR)
            _log.info("reloaded%s", f"; restart the server to change {', '.join(waiting)}" if waiting else "")
        except (KnnmtError, UnavailableError) as error:
            _log.error("not reloaded: %s", error)

    def start() -> None:
        task = asyncio.ensure_future(reload())
        running.add(task)
        task.add_done_callback(running.discard)

    hangup: signal.Signals | None = getattr(signal, "SIGHUP", None)
    handles = hangup is not None and threading.current_thread() is threading.main_thread()
    loop = asyncio.get_running_loop()
    if handles:
        loop.add_signal_handler(signal.SIGHUP, start)
    yield
    if handles:
        loop.remove_signal_handler(signal.SIGHUP)


async def _expire(documents: DocumentJobs, lifetime: float) -> None:
    """Remove old documents, also while nobody asks."""
    while True:
        await asyncio.sleep(min(EXPIRY, lifetime))
        documents.expire()


def _add_monitoring(app: FastAPI) -> None:
    """Add the routes for probes and Prometheus."""

    @app.get("/ready", tags=["Server"], response_model=Readiness)
    async def ready(server: Serving) -> Any:
        """Report whether the server accepts requests and makes progress, and which model is being loaded."""
        if (trouble := server.trouble()) is not None:
            raise UnavailableError(trouble, 5)
        return {"status": "ready", "loading": server.pool.loading if server.pool is not None else None}

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
    async def failed_disk(_: Request, error: OSError) -> Answer:
        log_failure(_log, error)
        if reason := unwritable(error):
            return Answer({"error": reason}, 503, {"Retry-After": "60"})
        return Answer({"error": FAILED}, 500)

    @app.exception_handler(NoPairError)
    async def no_pair(request: Request, error: NoPairError) -> Answer:
        # for LibreTranslate and DeepL, the request is invalid
        return Answer({"error": str(error)}, 404 if request.url.path.startswith(OWN) else 400)

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
