"""Receiving a file: room is set aside before the body is read, so that uploads cannot fill the disk."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from fastapi import HTTPException, Request
from starlette.datastructures import UploadFile
from starlette.requests import ClientDisconnect

from knnmt.server.fields import check_names
from knnmt.server.spool import Spool, Spooled

PIECE = 1 << 20  # bytes that are copied at a time
MAX_FIELDS = 64  # of a form with a file
MAX_FIELD = 1 << 20  # bytes of a field: a glossary may be long
ENVELOPE = 1 << 20  # bytes that a body may be larger than the file in it


@dataclass
class Upload:
    """A received file, with its name as the client gave it, and the other fields of the form."""

    file: Spooled
    name: str | None = None  # None: it was not sent in a form
    fields: dict[str, str] = field(default_factory=dict)
    kept: bool = False

    def keep(self) -> Spooled:
        """Take the file, which is removed otherwise."""
        self.kept = True
        return self.file


@contextlib.asynccontextmanager
async def received(request: Request, spool: Spool, limit: int, suffix: str = "") -> AsyncIterator[Upload]:
    """An upload, on disk: the first file of a form, or the whole body. `limit` is that of the body's bytes."""
    length = request.headers.get("content-length", "")
    upload = Upload(spool.reserve(min(int(length), limit) if length.isdigit() else limit, suffix))
    try:
        if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
            await _read_form(request, upload)
            if upload.name is None:
                raise HTTPException(400, "Invalid request: missing file parameter")
        else:
            with upload.file.path.open("wb") as out:
                async for piece in request.stream():
                    out.write(piece)
        upload.file.resize(upload.file.path.stat().st_size)
        yield upload
    finally:
        if not upload.kept:
            upload.file.discard()


async def _read_form(request: Request, upload: Upload) -> None:
    """Take fields and file from a form. While it is parsed, its file may be a second time on disk."""
    try:
        async with request.form(max_files=1, max_fields=MAX_FIELDS, max_part_size=MAX_FIELD) as form:
            check_names(form.keys())
            for name, value in form.multi_items():
                if not isinstance(value, UploadFile):
                    upload.fields.setdefault(name, value)
                    continue
                upload.name = value.filename or ""
                with upload.file.path.open("wb") as out:
                    while piece := await value.read(PIECE):
                        out.write(piece)
    except (HTTPException, ClientDisconnect, OSError):
        raise
    except Exception:  # the parser raises many kinds of errors
        raise HTTPException(400, "Invalid request: malformed form") from None
