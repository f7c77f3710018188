"""Servers in this process: their routes are called as a client would, without a network."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from starlette.testclient import TestClient

from knnmt.server.app import create_app
from knnmt.server.settings import ServerSettings

from .standin import StandIn

Serve = Callable[..., TestClient]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serve a stand-in with some settings."""
    with ExitStack() as stack:

        def start(standin: StandIn | None = None, **settings: Any) -> TestClient:
            app = create_app((standin or StandIn()).as_translator(), ServerSettings(**settings))
            return stack.enter_context(TestClient(app, base_url="http://localhost", raise_server_exceptions=False))

        yield start


@pytest.fixture
def standin() -> StandIn:
    """A translator without a model."""
    return StandIn()


@pytest.fixture
def client(serve: Serve, standin: StandIn) -> TestClient:
    """A client of a server with the usual settings."""
    return serve(standin)
