"""Listening and serving: connections are bounded in number and in time, and SIGTERM ends the server gracefully."""

import asyncio
import math
import signal
import socket

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from knnmt import host
from knnmt.errors import UsageError
from knnmt.server.server import Server
from knnmt.server.settings import ServerSettings
from knnmt.server.worker import GRACE

HEAD_LIMIT = 10.0  # seconds until the head of a request must have arrived
KEEP_ALIVE = 30  # seconds that an idle connection is kept
WRITE_LIMIT = 30.0  # seconds in which a client must read some of an answer that is too large for the socket's buffer
AT_ONCE = 64  # connections accepted at a time, before those that are too many are closed
OPEN_STILL = 4  # times as many may be open: asyncio closes what it accepted some turns of its loop later
BACKLOG = 1024  # connections that the system keeps until they are accepted: more are only let in a second later
MOST, LEAST = 1000, 16  # connections, where the system allows as many, and where it allows too few


def listening(settings: ServerSettings) -> socket.socket:
    """A socket bound to the server's address."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # with protocol 0, asyncio would leave Nagle's algorithm on: 40 ms more for every answer on a kept-alive connection
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    host.reuse_address(bound)
    try:
        bound.bind((settings.host, settings.port))
    except (OSError, UnicodeError) as error:
        bound.close()
        reason = getattr(error, "strerror", None) or error
        where = f"{settings.host}, port {settings.port}"
        raise UsageError(f"cannot listen on {where} ({reason}): choose another --host or --port") from None
    return bound


def room() -> tuple[int, int]:
    """The connections that this process has file descriptors for, beside those it needs itself: kept, and accepted at
    a time."""
    limit, used = host.open_files()
    if limit is None:
        return MOST, AT_ONCE
    free = limit - used
    at_once = max(1, min(AT_ONCE, free // 16))
    return max(LEAST, min(MOST, (free - OPEN_STILL * at_once) // 2)), at_once


class Connection(H11Protocol):
    """A connection that is closed if no request arrives in time, if its client reads no answer, or if it is idle and
    others need its place."""

    most = MOST
    _timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _idle_since = 0.0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for a request; make room for it if there are too many connections."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            # those that were just closed are listed until the loop comes round
            others = [each for each in self.connections if isinstance(each, Connection) and each is not self]
            others = [each for each in others if not each.transport.is_closing()]
            idle = [each for each in others if each.conn.their_state is h11.IDLE]
            if len(others) >= self.most:
                min(idle, key=lambda each: each._idle_since, default=self).transport.abort()

    def data_received(self, data: bytes) -> None:
        """Read a part of a request."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._timer is None:
            self._wait()

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        self._idle_since = self.loop.time()
        super().on_response_complete()

    def pause_writing(self) -> None:
        """Wait for a client to read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(WRITE_LIMIT, self.transport.abort)

    def resume_writing(self) -> None:
        """Go on writing."""
        self._stop_write_timer()
        super().resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """End."""
        self._stop_waiting()
        self._stop_write_timer()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._idle_since = self.loop.time()
        self._timer = self.loop.call_later(HEAD_LIMIT, self.transport.abort)

    def _stop_write_timer(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def configured(app: FastAPI) -> uvicorn.Config:
    """How uvicorn serves the application."""
    most, at_once = room()
    return uvicorn.Config(
        app,
        http=type("BoundedConnection", (Connection,), {"most": most}),
        loop="asyncio",
        ws="none",
        backlog=at_once,
        access_log=False,  # it would log addresses and query strings
        log_config=None,
        proxy_headers=False,  # X-Forwarded-For is what a client says: rate limits would be a matter of courtesy
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=math.ceil(GRACE) + 1,  # then uvicorn hangs up
    )


class GracefulServer(uvicorn.Server):
    """Answers 503 to requests that are still waiting after `GRACE` seconds, instead of hanging up."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen: asyncio takes the number that it accepts at a time for the backlog, too few for a crowd."""
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End."""
        server: Server = self.config.app.state.server  # type: ignore[union-attr]
        asyncio.get_running_loop().call_later(GRACE, server.abandon)
        await super().shutdown(sockets)


def run(app: FastAPI, bound: socket.socket) -> None:
    """Serve until SIGTERM or SIGINT, then refuse new requests, finish what can be finished in seconds, and return."""
    # uvicorn raises the signal again when it is done, for the handler that was there before
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    GracefulServer(configured(app)).run(sockets=[bound])
