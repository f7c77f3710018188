"""`/v1/files`: upload a document, follow its translation, fetch or cancel it. LibreTranslate's routes use the same."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictStr, WithJsonSchema
from pydantic_core import from_json

from knnmt.documents.formats import BY_NAME
from knnmt.server.dependencies import Recognised, Serving, while_connected
from knnmt.server.description import language
from knnmt.server.document_jobs import DocumentJob, DocumentStatus, HowToRead, raise_fault
from knnmt.server.document_language import desk_for
from knnmt.server.fields import Flag, form_with_file, schema_of, validated
from knnmt.server.glossaries import MAX_TERMS, TermIn
from knnmt.server.routes.libretranslate import ApiKey
from knnmt.server.server import Server
from knnmt.server.uploads import ENVELOPE, Upload, received
from knnmt.server.work_items import DecodingOptions

router = APIRouter(prefix="/v1/files", tags=["Files"])
libretranslate = APIRouter(tags=["LibreTranslate"])


def _names(given: str | None) -> list[str] | None:
    """Names with commas between them."""
    return None if given is None else [name.strip() for name in given.split(",") if name.strip()]


class DocumentFields(BaseModel):
    """Fields beside the file."""

    model_config = ConfigDict(extra="ignore")

    format: StrictStr | None = Field(
        default=None,
        description="name of the format; default: by suffix and content",
        json_schema_extra={"enum": list(BY_NAME)},
    )
    columns: StrictStr = Field(default="", description="of a table: SOURCE,TARGET, or one name to translate in place")
    everything: Flag = Field(default=False, description="also translate what is translated already")
    glossary: Annotated[list[TermIn], BeforeValidator(from_json)] = Field(
        default=[], max_length=MAX_TERMS, description="terms, as JSON: a list of objects with source and target"
    )
    source: StrictStr | None = Field(
        default=None, description="language code, or auto to detect it; default: the first pair's"
    )
    target: StrictStr | None = Field(default=None, description="language code; default: the first pair's")
    memories: Annotated[list[StrictStr] | None, BeforeValidator(_names), WithJsonSchema({"type": "string"})] = Field(
        default=None, description="names of memories, with commas; default: the caller's"
    )
    api_key: ApiKey = None


class FileFields(BaseModel):
    """Fields of `/translate_file`, beside the file."""

    model_config = ConfigDict(extra="ignore")

    source: StrictStr = Field(
        description="language code, or auto", examples=["de"], json_schema_extra=language("source", auto=True)
    )
    target: StrictStr = Field(description="language code", examples=["en"], json_schema_extra=language("target"))
    api_key: ApiKey = None


class TranslatedFile(BaseModel):
    """Where the translated document can be fetched."""

    translatedFileUrl: str  # noqa: N815  the name is LibreTranslate's


def form_schema(model: type[BaseModel]) -> dict[str, Any]:
    """The OpenAPI description of a form with a file."""
    schema = schema_of(model)
    schema["required"] = ["file", *schema.get("required", [])]
    return {"requestBody": {"required": True, "content": form_with_file(schema, "document.txt", "Guten Morgen!")}}


@contextlib.asynccontextmanager
async def uploaded(request: Request, server: Server) -> AsyncIterator[Upload]:
    """Receive a document, if documents are allowed and there is room."""
    limit, length = server.settings.max_file, request.headers.get("content-length", "")
    if not limit:
        raise HTTPException(403, "Files translation are disabled on this server.")
    server.checks.origin(request, "upload to")
    # a wrong key is refused before the body is read; LibreTranslate's clients send theirs in the body
    caller = server.recognise(request) if "authorization" in request.headers else None
    server.documents.make_room(min(limit, int(length)) if length.isdigit() else limit, caller)
    async with received(request, server.spool, limit + ENVELOPE) as upload:
        if upload.name is None:
            raise HTTPException(400, "Invalid request: missing file parameter")
        if not upload.name or not upload.file.size:
            raise HTTPException(400, "Invalid request: empty file")
        if upload.file.size > limit:
            raise HTTPException(400, f"Invalid request: the file is larger than {limit} bytes")
        yield upload


@router.post("", response_model=DocumentStatus, status_code=202, openapi_extra=form_schema(DocumentFields))
async def upload(request: Request, server: Serving) -> Any:
    """Upload a document. It is translated in the background; exact matches of the memory need no review."""
    async with uploaded(request, server) as sent:
        asked = validated(DocumentFields, sent.fields)
        caller = server.caller(request, asked.api_key)
        if asked.format is not None and asked.format not in BY_NAME:
            raise HTTPException(400, f"unknown format {asked.format!r}: choose from {', '.join(BY_NAME)}")
        columns = tuple(name.strip() for name in asked.columns.split(",") if name.strip())
        how = HowToRead(asked.format, columns, asked.everything)
        desk = await desk_for(server, caller, sent, how, asked.source, asked.target, asked.memories)
        options = DecodingOptions(beam=server.settings.beam, glossary=desk.glossaries.of(asked.glossary))
        server.doorkeeper.count_characters(caller, sent.file.size)
        return server.documents.start(sent, desk, options, how).status()


@router.get("/{id}", response_model=DocumentStatus)
async def progress(id: str, server: Serving, caller: Recognised) -> Any:
    """Report the progress of a document."""
    return server.documents.find(id, caller).status()


@router.get("/{id}/result", response_class=FileResponse)
async def result(id: str, server: Serving, caller: Recognised) -> FileResponse:
    """Fetch the translated document; 404 until it is done."""
    return _response(server.documents.find(id, caller))


@router.delete("/{id}", response_model=DocumentStatus)
async def cancel(id: str, server: Serving, caller: Recognised) -> Any:
    """Cancel a document and remove it."""
    job = server.documents.find(id, caller)
    server.documents.remove(job)
    return job.status()


def _response(job: DocumentJob) -> FileResponse:
    if job.state != "done":
        raise HTTPException(404, job.error or f"{job.name} is not translated yet: {job.state}")
    return FileResponse(job.file.path, media_type="application/octet-stream", filename=job.result)


@libretranslate.post("/translate_file", response_model=TranslatedFile, openapi_extra=form_schema(FileFields))
async def translate_file(request: Request, server: Serving) -> Any:
    """Translate a document, and answer with the address of the result."""
    async with uploaded(request, server) as sent:
        asked = validated(FileFields, sent.fields)
        caller = server.caller(request, asked.api_key)
        desk = await desk_for(server, caller, sent, HowToRead(), asked.source, asked.target)
        options = DecodingOptions(beam=server.settings.beam, glossary=desk.glossaries.own)
        server.doorkeeper.count_characters(caller, sent.file.size)
        job = server.documents.start(sent, desk, options, HowToRead())
    try:
        await while_connected(request, asyncio.wrap_future(job.finished))
        raise_fault(job)
    except BaseException:
        server.documents.remove(job)
        raise
    proxied = request.headers.get("x-forwarded-proto")
    scheme = proxied if proxied in ("http", "https") else request.url.scheme  # a proxy may end TLS
    place = request.url_for("download_file", name=f"{job.id}.{job.result}").replace(scheme=scheme)
    return {"translatedFileUrl": str(place)}


@libretranslate.get("/download_file/{name}", response_class=FileResponse)
async def download_file(name: str, server: Serving, caller: Recognised) -> FileResponse:
    """Fetch a translated document; with the key that uploaded it, if the server requires keys."""
    return _response(server.documents.find(name.partition(".")[0], caller))
