"""A server with canned answers: the page's other half, small and quick, and able to fail on purpose."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import knnmt

PAGE = Path(knnmt.__file__).parent / "server" / "page"
KINDS = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
NAMES = {"de": "German", "en": "English", "fr": "French"}
WORDS = {
    "das": "the", "haus": "house", "ist": "is", "groß": "big", "klicken": "click", "sie": "", "auf": "on",
    "speichern": "save", "die": "the", "datei": "file", "wird": "is", "geöffnet": "opened",
}  # fmt: skip


class StandIn:
    """What the server knows, and how it is to behave."""

    def __init__(self) -> None:
        self.memory: dict[str, dict[str, str]] = {
            "#0": {"id": "#0", "source": "Das Haus ist groß.", "target": "The house is big.", "origin": "corpus.tmx"}
        }
        self.taught: list[str] = []  # ids, the newest last
        self.asked: list[dict[str, Any]] = []
        self.failing: tuple[int, str] | None = None  # status and message of all answers but the page's
        self.delay = 0.0
        self.limit: int | None = None  # translations before all others are refused
        self.key = ""  # that requests need
        self.learns = True
        self.systems = ["base", "fast", "proto"]
        self.memories = ["project"]  # of German to English; the last one learns
        self.pairs = [("de", "en")]
        self.name, self.role = "", "admin"  # of the caller
        self.queue: list[dict[str, Any]] = []  # suggestions that wait for a reviewer
        self.decided: list[tuple[str, str, str | None]] = []  # id, decision, edited translation
        self.jobs: dict[str, dict[str, Any]] = {}
        self.url = ""

    def translate(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Word for word, in two pieces a word; what was taught is taken from the memory."""
        self.asked.append(asked)
        time.sleep(self.delay)
        found = []
        for text in asked["q"]:
            known = next((each for each in reversed(self.memory.values()) if each["source"] == text), None)
            base = asked.get("system") == "base" or not self.memories or asked.get("source") == "en"
            target = known["target"] if known and not base else self._plain(text)
            weight = 0.0 if base else asked.get("lambda", 0.8)
            tokens = [] if base else [self._token(piece, known, weight) for piece in pieces(target)]
            found.append({"text": target, "score": -0.3, "alternatives": [], "tokens": tokens})
        return {"translations": found}

    def _plain(self, text: str) -> str:
        words = [WORDS.get(word.lower().strip(".,!"), word.strip(".,!")) for word in text.split()]
        line = " ".join(word for word in words if word)
        return line[:1].upper() + line[1:] + "."

    def _token(self, piece: str, known: dict[str, str] | None, weight: float) -> dict[str, Any]:
        from_memory = known is not None
        p_mt, p_knn = (0.2, 0.95) if from_memory else (0.7, 0.05 * (len(piece) % 3))
        weight = weight if from_memory else weight / 4
        p = weight * p_knn + (1 - weight) * p_mt
        spoke = known or self.memory.get("#0", {"source": "", "target": "", "origin": "", "id": ""})
        before, _, after = spoke["target"].partition(piece.strip() or "\n")
        near = {
            "source": spoke["source"], "before": before, "token": piece if piece else "", "after": after,
            "origin": spoke["origin"], "id": spoke["id"], "memory": self.memories[-1] if self.memories else "",
            "distance": 12.5, "weight": 0.9,
        }  # fmt: skip
        other = {**near, "token": " garden", "before": "A", "after": " is green.", "weight": 0.1}
        return {
            "text": piece, "p": p, "p_mt": p_mt, "p_knn": p_knn, "lambda": weight,
            "memory": weight * p_knn / p, "neighbours": [near, other] if piece else [],
        }  # fmt: skip

    def me(self) -> dict[str, Any]:
        """Who the caller is, and what they may do."""
        pairs = []
        for source, target in self.pairs:
            memories = self.memories[::-1] if source == "de" else []
            accepted = self.learns and bool(memories)
            pairs.append(
                {
                    "source": {"code": source, "name": NAMES[source]},
                    "target": {"code": target, "name": NAMES[target]},
                    "memories": memories,
                    "learning": memories[0] if accepted else None,
                    "review": accepted and self.role == "translate",
                }
            )
        return {"name": self.name, "role": self.role, "keys": bool(self.key), "pairs": pairs}

    def rights(self) -> list[dict[str, Any]]:
        """The memories, the last one first, which is the only one that learns."""
        may = self.learns and self.role != "translate"
        about = {"source": "de", "target": "en", "segments": 1, "taught": 0, "role": self.role}
        return [
            {"name": name, "learns": may and name == self.memories[-1], **about} for name in reversed(self.memories)
        ]

    def suggest(self, source: str, target: str, author: str = "ben") -> None:
        """Put a suggestion into the queue."""
        about = {"id": f"s-{len(self.queue)}", "memory": self.memories[-1], "date": "2026-03-01T09:30:00Z"}
        known = next((each["target"] for each in self.memory.values() if each["source"] == source), None)
        texts = {"source": source, "target": target, "current": known}
        self.queue.append({**about, **texts, "author": author, "origin": "added", "segment": None})

    def review(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """A page of the queue."""
        offset, limit = int(query.get("offset", ["0"])[0]), int(query.get("limit", ["50"])[0])
        return {"total": len(self.queue), "suggestions": self.queue[offset : offset + limit]}

    def decide(self, id: str, decision: str, edited: str | None) -> None:
        """Take a suggestion out of the queue, and teach it if it is accepted."""
        found = next(each for each in self.queue if each["id"] == id)
        self.queue.remove(found)
        self.decided.append((id, decision, edited))
        if decision == "accept":
            self.add(found["source"], edited or found["target"], found["origin"])

    def teach(self, asked: list[dict[str, str]]) -> dict[str, Any]:
        """Add segments at once, or to the queue."""
        for each in asked:
            if self.role == "translate":
                self.suggest(each["source"], each["target"], self.name)
            else:
                self.add(each["source"], each["target"], "added")
        return {"ids": []}

    def listed(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Segments, as they are stored or the newest first."""
        offset, limit = int(query.get("offset", ["0"])[0]), int(query.get("limit", ["50"])[0])
        sought = query.get("q", [""])[0].casefold()
        recent = query.get("order", [""])[0] == "recent"
        every = [self.memory[id] for id in reversed(self.taught)] if recent else list(self.memory.values())
        every = [each for each in every if sought in (each["source"] + "\n" + each["target"]).casefold()]
        some = [{"memory": self.memories[-1], **each} for each in every[offset : offset + limit]]
        return {"total": len(every), "more": len(every) > offset + limit, "segments": some}

    def add(self, source: str, target: str, origin: str) -> None:
        """Remember a segment in place of what was taught for the same text."""
        id = f"taught-{source}"
        self.memory[id] = {"id": id, "source": source, "target": target, "origin": origin}
        self.taught = [*(each for each in self.taught if each != id), id]

    def take(self, body: bytes) -> dict[str, Any]:
        """Begin an import that adds a segment at each look."""
        from lxml import etree

        units = etree.fromstring(body, etree.XMLParser(resolve_entities=False, no_network=True)).iter("tu")
        pairs = [[str(seg.text) for seg in unit.iter("seg")] for unit in units]
        name = f"job-{len(self.jobs)}"
        self.jobs[name] = {"pairs": pairs, "done": 0}
        return self.job(name)

    def job(self, name: str) -> dict[str, Any]:
        """How it stands, after one more step."""
        job = self.jobs[name]
        pairs, done = job["pairs"], job["done"]
        state = "done" if done == len(pairs) else "running"
        report = {
            "added": done,
            "dropped": {"too long": 2} if state == "done" else {},
            "faults": ["upload.tmx:7: no seg"],
        }
        if done < len(pairs):
            german, english = pairs[done]
            self.add(german, english, "upload.tmx")
            job["done"] += 1
        return {"id": name, "state": state, "done": done, "total": len(pairs), "error": None, "report": report}


def pieces(text: str) -> list[str]:
    """Subwords: a space begins a word, long words are in two, marks stand alone; the end is empty."""
    found = []
    for number, word in enumerate(text.split()):
        core = word.rstrip(".,!?")
        lead = " " if number else ""
        found += [lead + core[:4], core[4:]] if len(core) > 5 else [lead + core]
        found += list(word[len(core) :])
    return [piece for piece in found if piece] + [""]


class Handler(BaseHTTPRequestHandler):
    """The routes that the page uses."""

    standin: StandIn

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def answer(self, status: int, content: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(content)

    def handle_any(self) -> None:
        address = urlsplit(self.path)
        path, query = unquote(address.path), parse_qs(address.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if path == "/" or path.startswith("/page/"):
            file = PAGE / (path.removeprefix("/page/") if path != "/" else "index.html")
            self.answer(200, file.read_bytes(), KINDS[file.suffix])
            return
        try:
            status, content = self.route(path, query, body)
        except Exception as error:
            status, content = 400, {"error": str(error)}
        self.answer(status, json.dumps(content).encode())

    do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

    def route(self, path: str, query: dict[str, list[str]], body: bytes) -> tuple[int, dict[str, Any]]:
        standin = self.standin
        if standin.key and path.startswith("/v1/") and self.headers["Authorization"] != f"Bearer {standin.key}":
            return 403, {"error": "an API key is needed: ask whoever runs this server for one"}
        if standin.failing:
            return standin.failing[0], {"error": standin.failing[1]}
        match self.command, path:
            case "GET", "/frontend/settings":
                return 200, {"keyRequired": bool(standin.key), "supportedFilesFormat": [".po"]}
            case "GET", "/v1/systems":
                names = ["base"] if query["source"] == ["en"] else standin.systems
                listed = [{"name": name, "summary": f"what {name} does"} for name in names]
                known = {"default": names[-1], "lambda": 0.8, "memories": standin.memories}
                return 200, {"systems": listed, **known}
            case "POST", "/v1/translate" if standin.limit is not None and len(standin.asked) >= standin.limit:
                return 429, {"error": "slowdown"}
            case "POST", "/v1/translate":
                return 200, standin.translate(json.loads(body))
            case "GET", "/v1/me":
                return 200, standin.me()
            case "GET", "/v1/memories":
                return 200, {"memories": standin.rights()}
            case "GET", "/v1/review":
                return 200, standin.review(query)
            case "POST", "/v1/memory":
                return 201, standin.teach(json.loads(body))
            case "GET", "/v1/memory":
                return 200, standin.listed(query)
            case "POST", "/v1/memory/search":
                return 200, standin.listed({name: [str(value)] for name, value in json.loads(body).items() if value})
            case "POST", "/v1/memory/import":
                return 202, standin.take(body)
            case "POST", _ if path.startswith("/v1/review/"):
                *_, id, decision = path.split("/")
                if not any(each["id"] == id for each in standin.queue):
                    return 404, {"error": f"no such suggestion: {id!r}"}
                standin.decide(id, decision, json.loads(body or b"{}").get("target"))
                return 200, {"ids": []}
            case "DELETE", _:
                id = path.removeprefix("/v1/memory/")
                standin.memory.pop(id)
                standin.taught = [each for each in standin.taught if each != id]
                return 200, {"ids": [id]}
            case "GET", _ if path.startswith("/v1/jobs/"):
                return 200, standin.job(path.removeprefix("/v1/jobs/"))
        return 404, {"error": "Not Found"}


@contextmanager
def serving(standin: StandIn) -> Iterator[str]:
    """Serve on a free port of this machine; gives the address."""
    handler = type("Here", (Handler,), {"standin": standin})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.02], daemon=True)
        thread.start()
        standin.url = f"http://127.0.0.1:{server.server_port}/"
        try:
            yield standin.url
        finally:
            server.shutdown()
            thread.join()
