"""A server is killed while people teach, suggest, review and reload, and a store is compacted: what was acknowledged
is there afterwards, and the next server starts.
"""

import contextlib
import hashlib
import json
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from knnmt import BuildSettings, Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model
from knnmt.server.audit import AuditLog
from knnmt.server.people import Caller
from knnmt.server.review import ReviewQueue
from knnmt.store.journal import Journal

from ..build.examples import parallel_text
from ..forked import Forked, script
from . import killed_server
from .killed_server import begin

KILLS = 50
PEOPLE = {"tina": "translate", "theo": "teach", "rita": "review", "ada": "admin"}
WORDS = "Haus Hund Katze Baum Garten läuft schläft sieht groß klein".split()

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")


@pytest.fixture(scope="module")
def process(model_folder: Callable[[str], Path]) -> Iterator[Forked]:
    with script(killed_server.__file__, model_folder("marian")) as process:
        yield process


@pytest.fixture
def config(model: Model, model_folder: Callable[[str], Path], tmp_path: Path) -> Path:
    text = parallel_text(tmp_path / "corpus.tsv", 30)
    settings = BuildSettings(clean=None, cluster_size=16, systems=("fast",))
    Datastore.build(text, model=model, langs="de-en", out=tmp_path / "store", settings=settings, workers=1)
    keys = "".join(
        f'[keys.{name}]\nrole = "{role}"\ndigest = "{hashlib.sha256(name.encode()).hexdigest()}"\n'
        for name, role in PEOPLE.items()
    )
    path = tmp_path / "server.toml"
    path.write_text(
        f'state = "state"\n[memories.m]\nstore = "store"\n'
        f'[[pairs]]\nlangs = "de-en"\nmodel = "{model_folder("marian")}"\ndevice = "cpu"\n{keys}',
        encoding="utf-8",
    )
    return path


class Team:
    """People at work on a server, who note what was acknowledged."""

    def __init__(self) -> None:
        self.taught: dict[str, str] = {}  # translations by source text
        self.removed: set[str] = set()
        self.suggested: dict[str, str] = {}  # ids of suggestions, with their source texts
        self.decided: set[str] = set()  # acknowledged
        self.decisions: dict[str, str] = {}  # on disk
        self.counts = dict.fromkeys(("teach", "remove", "suggest", "accept", "reject", "reload"), 0)
        self._number = 0

    def text(self) -> str:
        self._number += 1
        return f"{random.choice(WORDS)} {self._number}"

    def work(self, port: int, who: str, stop: threading.Event) -> None:
        """Do what a person does until the server is gone."""
        headers = {"Authorization": f"Bearer {who}"}
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=30) as client:
            while not stop.is_set():
                try:
                    getattr(self, who)(client)
                except httpx.TransportError:
                    return

    def tina(self, client: httpx.Client) -> None:
        text = self.text()
        found = client.post("/v1/memory", json={"source": text, "target": f"the {text}"})
        if found.status_code == 201:
            (id,) = found.json()["queued"]
            self.suggested[id] = text
            self.counts["suggest"] += 1

    def theo(self, client: httpx.Client) -> None:
        text = self.text()
        found = client.post("/v1/memory", json={"source": text, "target": f"a {text}"})
        if found.status_code != 201:
            return
        self.taught[text] = f"a {text}"
        self.counts["teach"] += 1
        if random.random() < 0.2:
            del self.taught[text]  # until it is known what became of it
            if client.delete(f"/v1/memory/{found.json()['ids'][0]}").status_code == 200:
                self.removed.add(text)
                self.counts["remove"] += 1

    def rita(self, client: httpx.Client) -> None:
        waiting = client.get("/v1/review", params={"limit": 3}).json().get("suggestions", [])
        for each in waiting:
            decision = random.choice(("accept", "reject"))
            if client.post(f"/v1/review/{each['id']}/{decision}", json={}).status_code == 200:
                self.decided.add(each["id"])
                self.counts[decision] += 1
                if decision == "accept":
                    self.taught[each["source"]] = each["target"]
        time.sleep(0.01)

    def ada(self, client: httpx.Client) -> None:
        if client.post("/v1/reload").status_code == 200:
            self.counts["reload"] += 1
        time.sleep(0.02)

    def check(self, folder: Path) -> None:
        """All that was acknowledged is there."""
        store = Datastore.open(folder / "store")
        known = {segment.source: segment.target for segment in store.segments()}
        assert {text: known.get(text) for text in self.taught} == self.taught
        assert not self.removed & set(known)
        place = folder / "state" / "review.journal"
        records = [json.loads(record) for record in Journal(place).read()]  # before the queue is opened, and rewritten
        self.decisions |= {record["decided"]: record["decision"] for record in records if "decided" in record}
        decided = self.decisions
        waiting = {each.id for each in ReviewQueue(place).waiting(Caller(role="admin"))}
        assert self.decided <= decided.keys()
        assert waiting | decided.keys() >= self.suggested.keys()
        assert not waiting & decided.keys()
        for id, decision in decided.items():  # also those that were not acknowledged any more
            if decision == "accepted" and id in self.suggested:
                assert known[self.suggested[id]] == f"the {self.suggested[id]}"
        log = AuditLog(folder / "state" / "audit.jsonl")
        done = log.latest(100_000)
        log.close()
        assert sum(entry["action"] == "teach" for entry in done) >= self.counts["teach"]
        assert sum(entry["action"] in ("accept", "reject") for entry in done) >= len(self.decided)


def kill(config: Path, process: Forked, model: Model, kills: int) -> Team:
    team, rng = Team(), random.Random(1)
    for number in range(kills):
        port, pid = begin(process, config)
        stop = threading.Event()
        threads = [threading.Thread(target=team.work, args=(port, who, stop)) for who in PEOPLE]
        for thread in threads:
            thread.start()
        before = sum(team.counts.values())
        while sum(team.counts.values()) < before + 3:  # it is at work
            time.sleep(0.005)
        compaction = threading.Thread(target=compact, args=(config.parent / "store", model))
        if number % 2 == 1:
            compaction.start()
        time.sleep(0.3 * rng.random())
        os.kill(pid, signal.SIGKILL)
        stop.set()
        for thread in [*threads, *([compaction] if number % 2 == 1 else [])]:
            thread.join()
        team.check(config.parent)
    return team


def compact(store: Path, model: Model) -> None:
    with contextlib.suppress(StoreError):  # the server may be writing for too long
        Datastore.open(store).compact(model, workers=1)


def test_two_kills_lose_nothing(config: Path, process: Forked, model: Model) -> None:
    kill(config, process, model, 2)


@pytest.mark.slow
def test_fifty_kills_lose_nothing(config: Path, process: Forked, model: Model) -> None:
    team = kill(config, process, model, KILLS)
    logging.getLogger(__name__).warning("acknowledged: %s", team.counts)
    assert min(team.counts.values()) > 0, team.counts
