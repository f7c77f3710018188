"""How a server stands up to a crowd: many connections that say nothing, and many clients at the same moment.

    python benchmarks/crowd.py --config server.toml --key KEY
    python benchmarks/crowd.py

A server is started as a process of its own. A thousand connections are opened and left silent, half of them in the
middle of a request's head. Then all clients ask at once, for several rounds, for texts of one to sixteen sentences.
Every answer must be a translation, or a 503 within a second; a probe of `/health` must be answered within a second
throughout. Exit code 1 if not.
"""

import argparse
import asyncio
import json
import random
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from load import server

TOLD = 1.0  # seconds until a client is sent away, and until a probe is answered
SIZES = (1, 1, 1, 2, 4, 8, 16)  # sentences of a text
WORDS = "Der Hund schläft im Garten und die Katze sitzt am Fenster mit einem Buch".split()


async def ask(port: int, head: str, body: bytes = b"") -> tuple[int, float]:
    """The status of an answer, 0 if there was none, and the seconds until it came."""
    begun = time.monotonic()
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"{head}Host: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
        )
        answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1]), time.monotonic() - begun
    except (OSError, IndexError, ValueError):
        return 0, time.monotonic() - begun


def translation(rng: random.Random, key: str | None) -> tuple[str, bytes]:
    """A request for a translation."""
    text = " ".join(f"{' '.join(rng.choices(WORDS, k=10))}." for _ in range(rng.choice(SIZES)))
    authorization = f"Authorization: Bearer {key}\r\n" if key else ""
    head = f"POST /translate HTTP/1.1\r\nContent-Type: application/json\r\n{authorization}"
    return head, json.dumps({"q": text, "source": "de", "target": "en"}).encode()


async def silent(port: int, count: int) -> list[asyncio.StreamWriter]:
    """Connections that say nothing, or half of what they should."""
    opened = []
    for number in range(count):
        _, writer = await asyncio.open_connection("127.0.0.1", port)
        if number % 2:
            writer.write(b"POST /translate HTTP/1.1\r\nHost: local")
        opened.append(writer)
    return opened


async def probe(port: int, ended: Callable[[], bool]) -> list[tuple[int, float]]:
    """Ask how the server does, ten times a second."""
    found = []
    while not ended():
        found.append(await ask(port, "GET /health HTTP/1.1\r\n"))
        await asyncio.sleep(0.1)
    return found


async def crowd(port: int, given: argparse.Namespace) -> dict[str, Any]:
    """What clients and probes saw."""
    rng, done = random.Random(1), False
    opened = await silent(port, given.silent)
    probing = asyncio.create_task(probe(port, lambda: done))
    answers: list[tuple[int, float]] = []
    for _ in range(given.rounds):
        asked = [translation(rng, given.key) for _ in range(given.clients)]
        answers += await asyncio.gather(*(ask(port, *each) for each in asked))
    done = True
    probes = await probing
    for writer in opened:
        writer.close()
    by_code: dict[int, list[float]] = {}
    for code, seconds in answers:
        by_code.setdefault(code, []).append(seconds)
    return {
        "answers_by_code": {str(code): len(each) for code, each in sorted(by_code.items())},
        "slowest_by_code": {str(code): round(max(each), 3) for code, each in sorted(by_code.items())},
        "probes": len(probes),
        "slowest_probe": round(max(seconds for _, seconds in probes), 3),
        "failed_probes": sum(code != 200 for code, _ in probes),
    }


def main() -> None:
    """Measure, report, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, help="configuration of the server; default: the embedded models")
    parser.add_argument("--key", help="one of its keys")
    parser.add_argument("--silent", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]),) * 2)
    with server(["--config", str(given.config.resolve())] if given.config else []) as (port, _):
        report = asyncio.run(crowd(port, given))
    print(json.dumps(report, indent=2))
    codes, slowest = report["answers_by_code"], report["slowest_by_code"]
    fine = set(codes) <= {"200", "503"} and slowest.get("503", 0.0) <= TOLD
    raise SystemExit(not fine or bool(report["failed_probes"]) or report["slowest_probe"] > TOLD)


if __name__ == "__main__":
    main()
