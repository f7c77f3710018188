"""What routes depend on: the server, who calls, and work that ends when the client leaves."""

import asyncio
from collections.abc import Awaitable
from typing import Annotated, TypeVar

from fastapi import Depends, HTTPException, Request

from knnmt.server.middleware import CLOSED
from knnmt.server.people import Caller
from knnmt.server.server import Server

T = TypeVar("T")


async def server_of(request: Request) -> Server:
    """The server of a request."""
    server: Server = request.app.state.server
    return server


async def admitted(request: Request) -> Caller:
    """Who calls, by the key in the headers."""
    return (await server_of(request)).caller(request)


async def known(request: Request) -> Caller:
    """Who calls, by the key in the headers; the request is not counted."""
    return (await server_of(request)).recognise(request)


Serving = Annotated[Server, Depends(server_of)]
Calling = Annotated[Caller, Depends(admitted)]
Recognised = Annotated[Caller, Depends(known)]


async def while_connected(request: Request, work: Awaitable[T]) -> T:
    """Await work for a client, and cancel it if the client disconnects."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise HTTPException(CLOSED, "client closed request")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
