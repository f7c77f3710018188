"""Requests of all kinds, made from the interface's own description: none makes the server fail."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis import Case

from knnmt.server.app import create_app
from knnmt.server.rights import RIGHTS
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
    listed = {(method.lower(), re.sub(r":\w+}", "}", path)) for method, path in RIGHTS}
    assert routes <= listed
    hidden = {("get", path) for path in ("/", "/page/{file}", "/docs", "/openapi.json", "/spec")}
    assert listed - routes == hidden
    for methods in description["paths"].values():
        for about in methods.values():
            assert "422" not in about["responses"]
            assert about["description"]


@schema.parametrize()
@settings(
    max_examples=12,
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
        assert set(answer.json()) in ({"error"}, {"message"})  # ours, DeepL's
    case.validate_response(answer, checks=[schemathesis.checks.response_schema_conformance])
