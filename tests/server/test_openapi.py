"""Requests of all kinds, made from the interface's own description: none makes the server fail."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case

from knnmt.server.app import create_app
from knnmt.server.settings import ServerSettings

from .real import serving
from .standin import StandIn

APP = create_app(StandIn().as_translator(), ServerSettings())
schema = schemathesis.openapi.from_dict(APP.openapi())


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(StandIn().as_translator()) as number:
        yield number


def test_the_description_is_whole() -> None:
    description = APP.openapi()
    routes = {(method, path) for path, methods in description["paths"].items() for method in methods}
    assert routes == {
        ("get", "/languages"), ("post", "/translate"), ("post", "/detect"), ("post", "/suggest"), ("get", "/health"),
        ("get", "/frontend/settings"), ("post", "/v1/translate"), ("get", "/v1/systems"), ("get", "/v1/memory"),
        ("post", "/v1/memory"), ("put", "/v1/memory/{id}"), ("delete", "/v1/memory/{id}"),
        ("post", "/v1/memory/import"), ("get", "/v1/memory/export"), ("get", "/v1/jobs/{id}"), ("get", "/ready"),
        ("get", "/metrics"), ("post", "/translate_file"), ("get", "/download_file/{name}"), ("post", "/v1/files"),
        ("get", "/v1/files/{id}"), ("get", "/v1/files/{id}/result"), ("delete", "/v1/files/{id}"), ("get", "/v1/me"),
        ("get", "/v1/memories"),
    }  # fmt: skip
    for methods in description["paths"].values():
        for about in methods.values():
            assert "422" not in about["responses"]
            assert about["description"]


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_no_request_makes_the_server_fail(case: Case[Any], port: int) -> None:
    answer = case.call(base_url=f"http://127.0.0.1:{port}")
    assert answer.status_code < 500 or answer.status_code in (503, 504), answer.text
    assert answer.status_code != 422
    if answer.status_code >= 400:
        assert set(answer.json()) == {"error"}
    case.validate_response(answer, checks=[schemathesis.checks.response_schema_conformance])
