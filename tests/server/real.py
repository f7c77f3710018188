"""Servers behind a real socket, and HTTP to the byte."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from knnmt.server.app import create_app
from knnmt.server.listener import GracefulServer, configured, listening
from knnmt.server.settings import ServerSettings
from knnmt.translate import Translator


@contextlib.contextmanager
def serving(translator: Translator, **settings: Any) -> Iterator[int]:
    """Serve in a thread of this process; gives the port."""
    chosen = ServerSettings(port=0, **{"allow_host": ("*",), **settings})
    with running(create_app(translator, chosen)) as port:
        yield port


@contextlib.contextmanager
def running(app: FastAPI) -> Iterator[int]:
    """Run an application in a thread of this process; gives the port."""
    place = listening(app.state.server.settings.model_copy(update={"port": 0}))
    server = GracefulServer(configured(app))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [place]}, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.005)
    try:
        yield int(place.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join(30)


def exchange(port: int, request: bytes) -> tuple[bytes, dict[bytes, bytes], bytes]:
    """Send these bytes; the status line, headers and body that come back."""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as line:
        line.sendall(request)
        received = b""
        while b"\r\n\r\n" not in received and (more := line.recv(65536)):
            received += more
        head, _, body = received.partition(b"\r\n\r\n")
        status, *lines = head.split(b"\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (each.partition(b":") for each in lines)}
        size = int(headers.get(b"content-length", b"0"))
        while len(body) < size and (more := line.recv(65536)):
            body += more
        return status, headers, body
