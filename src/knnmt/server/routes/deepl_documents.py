"""DeepL's documents: upload, ask for progress, download. They are the documents of `/v1/files`."""

import hmac
from hashlib import sha256
from typing import Any, Literal

from fastapi import APIRouter, HTTPException, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, ConfigDict, Field, StrictStr

from knnmt.server.dependencies import Recognised, Serving
from knnmt.server.document_jobs import DocumentJob, HowToRead, State
from knnmt.server.document_language import desk_for
from knnmt.server.fields import body_schema, given_fields
from knnmt.server.routes.deepl import (
    RESPONSES,
    CommonFields,
    DeepLRoute,
    check_formality,
    check_languages,
    deepl_fields,
    glossaries_of,
    terms_of,
)
from knnmt.server.routes.files import form_schema, uploaded
from knnmt.server.work_items import DecodingOptions

router = APIRouter(prefix="/v2/document", tags=["DeepL"], route_class=DeepLRoute, responses=RESPONSES)
Status = Literal["queued", "translating", "done", "error"]
STATUS: dict[State, Status] = {
    "waiting": "queued", "running": "translating", "done": "done", "failed": "error", "cancelled": "error",
}  # fmt: skip


class DocumentFields(CommonFields):
    """Fields of `/v2/document`, beside the file."""

    output_format: StrictStr | None = Field(default=None, description="must be that of the file")


class KeyFields(BaseModel):
    """What proves that a document is the client's."""

    model_config = ConfigDict(extra="ignore")

    document_key: StrictStr = Field(min_length=1, description="key from the upload")


class Handle(BaseModel):
    """What to ask for a document with."""

    document_id: str
    document_key: str


class DocumentOut(BaseModel):
    """The progress of a document."""

    document_id: str
    status: Status
    seconds_remaining: int | None = None
    billed_characters: int | None = None
    error_message: str | None = None


@router.post("", response_model=Handle, openapi_extra=form_schema(DocumentFields))
async def upload(request: Request, server: Serving) -> Any:
    """Upload a document. It is translated in the background."""
    async with uploaded(request, server) as sent:
        caller = server.caller(request)
        asked = deepl_fields(DocumentFields, dict(sent.fields))
        check_languages(server, asked.source_lang, asked.target_lang)
        check_formality(asked.formality)
        if asked.output_format and not (sent.name or "").lower().endswith(f".{asked.output_format.lower()}"):
            raise HTTPException(400, "Value for 'output_format' not supported.")
        ids = [asked.glossary_id] if asked.glossary_id else []
        terms = terms_of(glossaries_of(request), caller, ids, asked.source_lang, asked.target_lang)
        desk = await desk_for(server, caller, sent, HowToRead(), asked.source_lang or "auto", asked.target_lang)
        options = DecodingOptions(beam=server.settings.beam, glossary=desk.glossaries.of(terms))
        server.doorkeeper.count_characters(caller, sent.file.size)
        job = server.documents.start(sent, desk, options, HowToRead())
    return {"document_id": job.id, "document_key": _key(job.id)}


@router.post(
    "/{id}", response_model=DocumentOut, response_model_exclude_none=True, openapi_extra=body_schema(KeyFields)
)
async def progress(id: str, request: Request, server: Serving, caller: Recognised) -> Any:
    """Report the progress of a document."""
    job = server.documents.find(await _own(id, request), caller)
    return {
        "document_id": job.id,
        "status": STATUS[job.state],
        "seconds_remaining": 1 if job.state in ("waiting", "running") else None,
        "billed_characters": 0 if job.state == "done" else None,
        "error_message": job.error or ("cancelled" if job.state == "cancelled" else None),
    }


@router.post("/{id}/result", response_class=FileResponse, openapi_extra=body_schema(KeyFields))
async def result(id: str, request: Request, server: Serving, caller: Recognised) -> FileResponse:
    """Fetch the translated document; 503 until it is done."""
    job: DocumentJob = server.documents.find(await _own(id, request), caller)
    if job.state != "done":
        raise HTTPException(503, job.error or "Document translation is not done")
    return FileResponse(job.file.path, media_type="application/octet-stream", filename=job.result)


def _key(id: str) -> str:
    """The key of a document: ids cannot be guessed, so it needs no secret of its own."""
    return sha256(id.encode()).hexdigest().upper()


async def _own(id: str, request: Request) -> str:
    asked = deepl_fields(KeyFields, await given_fields(request))
    if not hmac.compare_digest(_key(id).encode(), asked.document_key.encode(errors="replace")):
        raise HTTPException(404, "Document not found")
    return id
