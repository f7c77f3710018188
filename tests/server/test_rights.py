"""Who may call what: four people, three memories, every route. Nobody reaches a memory that is not theirs."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from starlette.routing import Mount
from starlette.testclient import TestClient

from knnmt.server.rights import RIGHTS

from .team import PAIRS, team

PEOPLE = ("nobody", "stranger", "tina", "theo", "rita", "ada")
USES = {"tina": {"handbook", "company"}, "theo": {"handbook", "company"}, "rita": {"handbook"}, "ada": set(PAIRS)}
PAIR = {"source": "x", "target": "y"}
TMX = (
    b'<tmx version="1.4"><header srclang="de"/><body><tu><tuv xml:lang="de"><seg>ein Haus</seg></tuv>'
    b'<tuv xml:lang="en"><seg>a house</seg></tuv></tu></body></tmx>'
)
FREE = [200] * 6
SUGGESTED = {"q": "x", "s": "y", "source": "de", "target": "en"}

# for each call: what nobody, a stranger, tina (translates), theo (teaches the handbook), rita (reviews the handbook)
# and ada (administers) are answered
CALLS: list[tuple[str, str, dict[str, Any], list[int]]] = [
    ("GET", "/", {}, FREE),
    ("GET", "/health", {}, FREE),
    ("GET", "/ready", {}, FREE),
    ("GET", "/languages", {}, FREE),
    ("GET", "/frontend/settings", {}, FREE),
    ("GET", "/v1/me", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v1/memories", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/metrics", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/docs", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/openapi.json", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v1/systems", {}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/translate", {"json": {"q": "x", "source": "de", "target": "en"}}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/translate", {"json": {"q": "x", "source": "en", "target": "de"}}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/detect", {"json": {"q": "x"}}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/v1/translate", {"json": {"q": "x", "evidence": True}}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/v1/translate", {"json": {"q": "x", "memories": ["company"]}}, [403, 403, 200, 200, 404, 200]),
    ("POST", "/v1/translate", {"json": {"q": "x", "memories": ["secret"]}}, [403, 403, 404, 404, 404, 200]),
    ("GET", "/v1/memory", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v1/memory", {"params": {"memory": "company"}}, [403, 403, 200, 200, 404, 200]),
    ("GET", "/v1/memory", {"params": {"memory": "secret", "q": "text"}}, [403, 403, 404, 404, 404, 200]),
    ("GET", "/v1/memory/export", {"params": {"memory": "handbook"}}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v1/memory/export", {"params": {"memory": "company"}}, [403, 403, 200, 200, 404, 200]),
    ("GET", "/v1/memory/export", {"params": {"memory": "secret"}}, [403, 403, 404, 404, 404, 200]),
    ("POST", "/suggest", {"json": SUGGESTED}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/v1/memory/search", {"json": {"memory": ["secret"], "q": "text"}}, [403, 403, 404, 404, 404, 200]),
    ("POST", "/v1/memory", {"json": PAIR}, [403, 403, 201, 201, 201, 201]),
    ("POST", "/v1/memory", {"json": PAIR, "params": {"memory": "company"}}, [403, 403, 201, 201, 404, 201]),
    ("POST", "/v1/memory", {"json": PAIR, "params": {"memory": "secret"}}, [403, 403, 404, 404, 404, 201]),
    ("PUT", "/v1/memory/handbook-1", {"json": PAIR}, [403, 403, 200, 200, 200, 200]),
    ("PUT", "/v1/memory/secret-1", {"json": PAIR}, [403, 403, 404, 404, 404, 404]),
    ("PUT", "/v1/memory/secret-1", {"json": PAIR, "params": {"memory": "secret"}}, [403, 403, 404, 404, 404, 200]),
    ("POST", "/v1/memory/import", {"content": TMX}, [403, 403, 403, 202, 202, 202]),
    ("POST", "/v1/memory/import", {"content": TMX, "params": {"memory": "company"}}, [403, 403, 403, 403, 404, 202]),
    ("POST", "/v1/memory/import", {"content": TMX, "params": {"memory": "secret"}}, [403, 403, 403, 404, 404, 202]),
    ("DELETE", "/v1/memory/company-1", {"params": {"memory": "company"}}, [403, 403, 403, 403, 404, 200]),
    ("DELETE", "/v1/memory/secret-1", {"params": {"memory": "secret"}}, [403, 403, 403, 404, 404, 200]),
    ("GET", "/v1/review", {}, [403, 403, 200, 200, 200, 200]),
    ("POST", "/v1/review/none/accept", {}, [403, 403, 403, 403, 404, 404]),
    ("POST", "/v1/review/none/reject", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/v1/jobs/none", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/v1/files/none", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/v1/files/none/result", {}, [403, 403, 404, 404, 404, 404]),
    ("DELETE", "/v1/files/none", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/download_file/none.txt", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/tmserver/languages/", {}, FREE),
    ("GET", "/v1/matches", {"params": {"q": "text of secret"}}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v1/matches", {"params": {"q": "x", "memories": "company"}}, [403, 403, 200, 200, 404, 200]),
    ("POST", "/v1/matches", {"json": {"q": "x", "memories": ["secret"]}}, [403, 403, 404, 404, 404, 200]),
    ("GET", "/tmserver/en/de/unit/text%20of%20secret", {}, [403, 403, 404, 404, 404, 200]),
    ("POST", "/v2/translate", {"json": {"text": ["x"], "target_lang": "EN"}}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v2/languages", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v2/usage", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v2/glossary-language-pairs", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v2/glossaries", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v2/glossaries/none", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/v3/glossaries", {}, [403, 403, 200, 200, 200, 200]),
    ("GET", "/v3/glossaries/none", {}, [403, 403, 404, 404, 404, 404]),
    ("GET", "/v1/audit", {}, [403, 403, 403, 403, 403, 200]),
    ("POST", "/v1/reload", {}, [403, 403, 403, 403, 403, 200]),
    ("POST", "/v1/files", {"files": {"file": ("a.txt", b"x")}}, [403, 403, 202, 202, 202, 202]),
    (
        "POST", "/v1/files", {"files": {"file": ("a.txt", b"x")}, "data": {"memories": "secret"}},
        [403, 403, 404, 404, 404, 202],
    ),
    (
        "POST", "/translate_file", {"files": {"file": ("a.txt", b"x")}, "data": {"source": "de", "target": "en"}},
        [403, 403, 200, 200, 200, 200],
    ),
]  # fmt: skip


@pytest.fixture
def client(tmp_path: Path) -> Iterator[TestClient]:
    with TestClient(team(tmp_path), base_url="http://localhost", raise_server_exceptions=False) as client:
        yield client


def as_(who: str) -> dict[str, str]:
    return {} if who == "nobody" else {"Authorization": f"Bearer {who}"}


@pytest.mark.parametrize("number", range(len(PEOPLE)), ids=PEOPLE)
def test_who_may_call_what(client: TestClient, number: int) -> None:
    who, answered = PEOPLE[number], {}
    for method, path, given, expected in CALLS:
        found = client.request(method, path, headers=as_(who), **given)
        answered[method, path, str(given)] = found.status_code, expected[number]
        for memory in set(PAIRS) - USES.get(who, set()):
            assert f"of {memory}" not in found.text, (method, path)
    assert {call: codes for call, codes in answered.items() if codes[0] != codes[1]} == {}
    assert len(CALLS) * len(PEOPLE) > 250


def routes_of(routes: Sequence[Any]) -> Iterator[Any]:
    """The routes, also those of included routers."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        yield from [route] if inner is None else routes_of(inner.routes)


def test_every_route_has_its_rights() -> None:
    routes = set()
    for route in routes_of(team(None).routes):
        methods = {"GET"} if isinstance(route, Mount) else route.methods - {"HEAD"}
        path = f"{route.path}/{{file:path}}" if isinstance(route, Mount) else route.path
        routes |= {(method, path) for method in methods}
    assert routes == set(RIGHTS)
    tried = {(method, path) for method, path, _, _ in CALLS}
    missing = [
        path for method, path in RIGHTS if not any(method == one and matches(path, other) for one, other in tried)
    ]
    assert all(path.startswith(("/page", "/spec", "/v2", "/v3")) for path in missing), missing  # theirs is one check


def matches(pattern: str, path: str) -> bool:
    parts, given = pattern.split("/"), path.split("/")
    return len(parts) == len(given) and all(a == b or a.startswith("{") for a, b in zip(parts, given, strict=True))


@pytest.mark.parametrize("who", ["tina", "theo", "rita"])
def test_what_is_not_ones_own_is_as_if_it_were_not_there(client: TestClient, who: str) -> None:
    """The same status and the same words, but for the name, for a memory of others and for none at all."""
    for method, path, given, _ in CALLS:
        text = str(given)
        if "secret" not in text and "secret" not in path:
            continue
        other = eval(text.replace("secret", "phantom"))  # the test's own table
        answers = [
            client.request(method, where, headers=as_(who), **how)
            for where, how in ((path, given), (path.replace("secret", "phantom"), other))
        ]
        assert answers[0].status_code == answers[1].status_code
        assert answers[0].text.replace("secret", "phantom") == answers[1].text


def test_jobs_documents_and_suggestions_are_their_owners(client: TestClient) -> None:
    upload = {"files": {"file": ("a.txt", b"text of handbook")}}
    document = client.post("/v1/files", headers=as_("theo"), **upload).json()["id"]  # type: ignore[arg-type]
    job = client.post("/v1/memory/import", headers=as_("theo"), content=TMX).json()["id"]
    (suggestion,) = client.post("/v1/memory", headers=as_("tina"), json=PAIR).json()["queued"]
    for place in (f"/v1/files/{document}", f"/v1/jobs/{job}"):
        assert client.get(place, headers=as_("theo")).status_code == 200
        for other in ("tina", "rita", "ada"):
            assert client.get(place, headers=as_(other)).status_code == 404
    seen = {who: client.get("/v1/review", headers=as_(who)).json()["total"] for who in USES}
    assert seen == {"tina": 1, "theo": 0, "rita": 1, "ada": 1}
    assert client.post(f"/v1/review/{suggestion}/reject", headers=as_("theo")).status_code == 404


def test_terms_of_other_memories_are_not_used(client: TestClient) -> None:
    text = " ".join(f"word of {name}." for name in PAIRS)
    for who, memory in (("rita", "handbook"), ("tina", "handbook")):
        (found,) = client.post("/v1/translate", headers=as_(who), json={"q": text}).json()["translations"]
        assert {term["target"] for term in found["terms"]} == {f"term of {memory}"}
