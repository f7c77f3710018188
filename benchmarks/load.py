"""How a server stands up to many clients: errors, throughput against plain `translate`, memory, waiting times.

    python benchmarks/load.py --store store/ --texts test.de
    python benchmarks/load.py --store koran/ --store software/ --store project/ --texts test.de --texts test.en

Stores of the same languages are memories of one pair; the texts of each pair are given in the order of their first
stores. Plain `translate` is measured before and after, alone, on the same texts at the same batch size. Between that a
server is started as a process of its own, and clients on this machine, which share its processor, ask it without
pause: requests of one to sixteen texts of any pair, and one client that teaches. Throughput is the time that plain
`translate` takes for what was served, over the time that the server took. With `--requests`, so many requests of one
short text are sent instead, which shows whether memory grows. Exit code 1 if a target is missed.
"""

import argparse
import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SIZES = (1, 1, 1, 2, 4, 8, 16)  # texts of a request
TAUGHT = 200  # characters: a lesson that is too long for the model is refused, and that is no fault
EXPECTED = {503, 429}  # what a server says when it has too much to do
THROUGHPUT, GROWTH = 0.75, 0.05  # at least, of plain `translate`; at most, in the second half
SHORT = 40  # characters of a short text


@dataclass(frozen=True)
class Work:
    """Texts of a pair of languages, and the stores that are its memories, the most specific last."""

    texts: list[str]
    source: str = "de"
    target: str = "en"
    stores: tuple[str, ...] = ()
    model: str = "mini"

    @property
    def languages(self) -> dict[str, object]:
        """As a request has them."""
        return {"source": self.source, "target": self.target}


@dataclass
class Load:
    """What the clients saw; filled while they run."""

    codes: Counter[int] = field(default_factory=Counter)
    segments: Counter[str] = field(default_factory=Counter)  # by source language
    taught: int = 0
    seconds: list[float] = field(default_factory=list)  # of each answer
    resident: list[float] = field(default_factory=list)  # MiB of the server, by and by, pages of the store included
    own: list[float] = field(default_factory=list)  # of that, memory of its own
    elapsed: float = 0.0  # until the last answer
    computed: float = 0.0  # seconds of the processor that the server took
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def faults(self) -> dict[int, int]:
        """Answers that should not be, by their code; 0 is a broken connection."""
        return {
            code: count for code, count in self.codes.items() if (code >= 300 and code not in EXPECTED) or code == 0
        }

    @property
    def growth(self) -> float:
        """How much more memory the server has at the end than half-way, as a share."""
        return growth(self.resident)

    def percentile(self, share: float) -> float:
        """The time in which this share of the answers came."""
        ordered = sorted(self.seconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def growth(measured: list[float]) -> float:
    """How much more the last tenth has than the tenth after the middle, as a share."""
    half, end = len(measured) // 2, max(1, len(measured) // 10)
    return max(measured[-end:]) / max(measured[half : half + end]) - 1 if half else 0.0


def drive(port: int, works: list[Work], clients: int, seconds: float, pid: int, requests: int | None = None) -> Load:
    """Let clients ask a server for some time; one of them also teaches, about once a second.

    requests: send so many instead, of one text each, and teach nothing
    """
    load, begun, before = Load(), time.monotonic(), computed(pid)
    end = begun + seconds
    left = None if requests is None else iter(range(requests))
    threads = [
        threading.Thread(target=_client, args=(port, works, number, end, load, left), daemon=True)
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads) and time.monotonic() < end:
        load.resident.append(memory(pid, "VmRSS"))
        load.own.append(memory(pid, "RssAnon"))
        time.sleep(min(0.5, seconds / 20))
    for thread in threads:
        thread.join()
    load.elapsed, load.computed = time.monotonic() - begun, computed(pid) - before
    return load


def _client(
    port: int, works: list[Work], number: int, end: float, load: Load, left: Iterator[int] | None = None
) -> None:
    rng = random.Random(number)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    lesson = time.monotonic() + 1 if number == 0 and left is None else float("inf")
    while (now := time.monotonic()) < end:
        work = rng.choice(works)
        path, asked, size = "/translate", dict(work.languages), 0
        if now >= lesson:
            text = rng.choice([text for text in work.texts if len(text) < TAUGHT])
            path, lesson = "/suggest", now + 1
            asked |= {"q": text, "s": f"Lesson {rng.random():.6f}."}
        elif left is None:
            asked["q"] = some = rng.sample(work.texts, rng.choice(SIZES))
            size = len(some)
        else:
            with load.lock:
                if next(left, None) is None:
                    return
            asked["q"], size = rng.choice(work.texts)[:SHORT], 1
        code, pause = _ask(connection, path, asked)
        with load.lock:
            load.codes[code] += 1
            load.seconds.append(time.monotonic() - now)
            if code == 200:
                load.segments[work.source] += size
                load.taught += size == 0
        if pause:
            connection.close()  # the server does not keep it open for so long
            time.sleep(min(pause, max(0.0, end - time.monotonic())))


def _ask(connection: http.client.HTTPConnection, path: str, asked: dict[str, Any]) -> tuple[int, float]:
    """The code of the answer, and how long the server asks us to wait."""
    try:
        body = json.dumps(asked).encode()
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return 0, 0.1
    return answer.status, float(answer.headers.get("Retry-After", 0))


def memory(pid: int, kind: str) -> float:
    """Memory of a process, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    found = re.search(rf"{kind}:\s+(\d+) kB", status)
    return int(found[1]) / 1024 if found else 0.0


def computed(pid: int) -> float:
    """Seconds of the processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def server(arguments: list[str]) -> Iterator[tuple[int, int]]:
    """A server as a process: its port and its id."""
    command = [sys.executable, "-c", "from knnmt.cli import main; main()", "serve", "--port", "0", "--quiet"]
    process = subprocess.Popen([*command, "--json", *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        _await_ready(port)
        yield port, process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        if code := process.wait(60):
            print(f"the server ended with code {code}", file=sys.stderr)


def _await_ready(port: int) -> None:
    for _ in range(600):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        try:
            connection.request("GET", "/ready")
            if connection.getresponse().status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise SystemExit("the server does not get ready")


def metric(port: int, name: str) -> float:
    """A number that the server counts."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    found = re.search(rf"^{name} ([\d.e+]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


PLAIN = """
import json, sys, time
from knnmt import TranslateSettings, Translator
asked = json.load(sys.stdin)
if asked["threads"]:
    import torch
    torch.set_num_threads(asked["threads"])
translator = Translator(asked["model"], asked["stores"] or None, system=asked["system"], langs=asked["langs"])
settings = TranslateSettings(batch_size=32)
translator.translate(asked["texts"][:64], settings)
begun, computed, count = time.perf_counter(), time.process_time(), 0
while count < len(asked["texts"]) or time.perf_counter() - begun < asked["seconds"]:
    translator.translate(asked["texts"], settings)
    count += len(asked["texts"])
print(json.dumps([count / (time.perf_counter() - begun), count / (time.process_time() - computed)]))
"""


def plain(given: argparse.Namespace, work: Work) -> tuple[float, float]:
    """Texts that `translate` does, in a process of its own: a second, and a second of the processor."""
    asked: dict[str, Any] = {"texts": work.texts, "seconds": min(30, given.seconds / 8), "threads": given.threads}
    asked |= {"model": work.model, "stores": work.stores, "system": given.system}
    asked["langs"] = f"{work.source}-{work.target}"
    done = subprocess.run([sys.executable, "-c", PLAIN], input=json.dumps(asked), text=True, capture_output=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    a_second, a_processor_second = json.loads(done.stdout)
    return a_second, a_processor_second


def works_of(given: argparse.Namespace) -> list[Work]:
    """What to translate, by pair: those of the stores, in their order, or that of the model."""
    pairs: dict[str, list[str]] = {}
    for store in given.store:
        manifest = json.loads((Path(store) / "manifest.json").read_text(encoding="utf-8"))
        pairs.setdefault(manifest["knnmt"]["languages"], []).append(str(Path(store).resolve()))
    pairs = pairs or {given.langs: []}
    works = []
    for (languages, stores), path in zip(pairs.items(), given.texts, strict=True):
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        source, _, target = languages.partition("-")
        works.append(Work(lines[: given.count], source, target, tuple(stores), given.model))
    return works


def configuration(works: list[Work], *options: str) -> str:
    """The configuration of a server for all pairs, with these options of each."""
    lines = []
    for number, store in enumerate(store for work in works for store in work.stores):
        lines += [f"[memories.m{number}]", f"store = {json.dumps(store)}"]
    for work in works:
        lines += ["[[pairs]]", f'langs = "{work.source}-{work.target}"', f"model = {json.dumps(work.model)}", *options]
    return "\n".join(lines)


def main() -> None:
    """Measure, report, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--langs", default="de-en", help="of the model, if there is no store")
    parser.add_argument("--store", action="append", default=[], help="repeatable; they are taught: give copies")
    parser.add_argument("--system")
    parser.add_argument("--texts", type=Path, action="append", required=True, help="source texts of a pair, one a line")
    parser.add_argument("--count", type=int, default=512, help="texts that are used, of each pair")
    parser.add_argument("--threads", type=int, help="of the model; default: all cores")
    parser.add_argument("--time-limit", type=float, default=30, help="of the server")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--requests", type=int, help="send so many of one short text, in place of the load")
    given = parser.parse_args()
    works = works_of(given)
    arguments = ["--time-limit", str(given.time_limit)]
    arguments += ["--threads", str(given.threads)] if given.threads else []
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(configuration(works))
        file.flush()
        arguments += ["--config", file.name]
        if given.requests is not None:
            raise SystemExit(judge_small(given, works, arguments))
        raise SystemExit(judge_load(given, works, arguments))


def judge_small(given: argparse.Namespace, works: list[Work], arguments: list[str]) -> int:
    """Whether memory stays flat while many small requests are served."""
    with server(arguments) as (port, pid):
        load = drive(port, works, given.clients, float("inf"), pid, given.requests)
    report = {"requests_per_second": round(sum(load.codes.values()) / load.elapsed, 1)}
    print(json.dumps(report | shown(load), indent=2))
    return int(bool(load.faults) or load.growth > GROWTH)


def judge_load(given: argparse.Namespace, works: list[Work], arguments: list[str]) -> int:
    """Whether the server keeps up with plain `translate`."""
    alone = [[plain(given, work)] for work in works]
    with server(arguments) as (port, pid):
        load = drive(port, works, given.clients, given.seconds, pid)
        batches = metric(port, "knnmt_batch_segments_count")
        filled = metric(port, "knnmt_batch_segments_sum") / max(1, batches)
        busy = metric(port, "knnmt_model_seconds_total") / load.elapsed
    for measured, work in zip(alone, works, strict=True):
        measured.append(plain(given, work))
    seconds = {"wall": 0.0, "processor": 0.0}  # that plain `translate` takes for what was served
    for measured, work in zip(alone, works, strict=True):
        for at, kind in enumerate(seconds):
            rates = [each[at] for each in measured]
            seconds[kind] += load.segments[work.source] * len(rates) / sum(rates)
    throughput = seconds["wall"] / load.elapsed
    report = {
        "clients": given.clients,
        "seconds": given.seconds,
        "segments_per_second": round(sum(load.segments.values()) / load.elapsed, 2),
        "translate_segments_per_second": {
            f"{work.source}-{work.target}": [round(rate, 2) for rate, _ in measured]
            for measured, work in zip(alone, works, strict=True)
        },
        "throughput": round(throughput, 3),
        "throughput_by_processor_time": round(seconds["processor"] / load.computed, 3),
        "segments_per_batch": round(filled, 1),
        "model_busy": round(busy, 3),
        "taught": load.taught,
    }
    print(json.dumps(report | shown(load), indent=2))
    return int(bool(load.faults) or throughput < THROUGHPUT or load.growth > GROWTH)


def shown(load: Load) -> dict[str, Any]:
    """What clients saw, and the memory of the server."""
    measured = len(load.resident)
    return {
        "answers_by_code": {str(code): count for code, count in sorted(load.codes.items())},
        "faults": {str(code): count for code, count in load.faults.items()},
        "seconds_p50_p95_p99": [round(load.percentile(share), 3) for share in (0.5, 0.95, 0.99)],
        "resident_mib_start_fifth_half_end": [
            round(load.resident[at], 1) for at in (0, measured // 5, measured // 2, -1)
        ],
        "growth_second_half": round(load.growth, 4),
        "growth_second_half_of_its_own": round(growth(load.own), 4),
    }


if __name__ == "__main__":
    main()
