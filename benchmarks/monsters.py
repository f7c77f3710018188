"""How long a small request waits beside a monstrous one, and how long a server takes to stop while it has one.

    python benchmarks/monsters.py
    python benchmarks/monsters.py --store store/ --only '<a' --only sentences
    python benchmarks/monsters.py --only 'sentences, text' --requests 100

For each monster a server is started as a process of its own and sent it, as text or as HTML. Beside it a client asks
for small translations, one after the other; with --requests at least so many, and the monster is sent again and again
meanwhile. Then the server is told to stop. Exit code 1 if a target is missed.
"""

import argparse
import http.client
import json
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import Any

ANSWERED, STOPPED = 3.0, 10.0  # seconds: the targets
SMALL = "Der Hund schläft im Garten."
SIZE = 49_900  # characters of a monster
SENTENCES = (
    "Der Ausschuss hat gestern in Brüssel über den Vorschlag der Kommission beraten. "
    "Klicken Sie auf Speichern, um Ihre Änderungen zu übernehmen! "
    "Warum der Zug heute Morgen zwei Stunden später kam, konnte niemand sagen. "
)


def monsters() -> dict[str, tuple[str, str]]:
    """A name, the text, and its format."""
    rng = random.Random(1)
    texts = {
        "<a, 3 KB": "<a " * 1000,
        "=, 3 KB": "=" * 3000,
        "漢, 3,000": "漢" * 3000,
        "<a": _full("<a "),
        "=": _full("="),
        "漢": _full("漢"),
        "x": _full("x"),
        "a b": _full("a b "),
        "ha": _full("haha "),
        "emoji": _full("😀"),
        "zero width": _full("a\u200b"),
        "newlines": "ab\n" * 511,
        "random letters": "".join(rng.choice("abcdefghij klmnopqrst uvwxyzäöü.,") for _ in range(SIZE)),
        "random characters": "".join(chr(rng.randrange(0x21, 0x2FFF)) for _ in range(SIZE)),
        "random bytes": rng.randbytes(SIZE).decode("latin-1"),
        "sentences": _full(SENTENCES),
        "one sentence": _full(SENTENCES.replace(".", ",").replace("!", ",")),
    }
    pages = {
        "<a": _full("<a "),
        "=": _full("="),
        "漢": _full("漢"),
        "<b>x</b>": _full("<b>x</b>"),
        "&amp;": _full("&amp;"),
        "<p>": _full("<p>"),
        "<p>x": _full("<p>x"),
        "nested <b>": "<b>" * 7000 + "x" + "</b>" * 7000,
        "nested <div>": "<div>" * 4500 + "x" + "</div>" * 4500,
        "Ab.": _full("Ab. "),
        "<b> and sentences": _full(SENTENCES.replace("gestern", "<b>gestern</b>")),
        "random bytes": rng.randbytes(SIZE).decode("latin-1"),
    }
    found = {f"{name}, text": (text, "text") for name, text in texts.items()}
    return found | {f"{name}, html": (text, "html") for name, text in pages.items()}


def _full(unit: str) -> str:
    return (unit * SIZE)[:SIZE]


@dataclass
class Seen:
    """What became of a monster, and of those beside it."""

    monster: str = "-"  # the code of its answer, or how it was cut off
    seconds: list[float] = field(default_factory=list)  # of each small request
    codes: list[int] = field(default_factory=list)
    stopped: float = 0.0  # seconds from SIGTERM to the end
    exit_code: int | None = None

    @property
    def slowest(self) -> float:
        """Of the small requests."""
        return max(self.seconds, default=0.0)

    def percentile(self, share: float) -> float:
        """The seconds in which this share of the small requests was answered."""
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(share * len(self.seconds)))]

    @property
    def met(self) -> bool:
        """Whether the targets are."""
        fine = set(self.codes) == {200} and self.slowest <= ANSWERED
        return fine and self.stopped <= STOPPED and self.exit_code == 0


def measure(arguments: list[str], text: str, kind: str, seconds: float, requests: int) -> Seen:
    """Send a monster to a new server, ask small things beside it for some seconds, then tell the server to stop."""
    seen, stopping = Seen(), threading.Event()
    command = [sys.executable, "-c", "from knnmt.cli import main; main()", "serve", "--port", "0", "--quiet", "--json"]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(json.loads(process.stdout.readline())["url"].rpartition(":")[2])
        while _ask(port, SMALL, "text") != 200 and process.poll() is None:
            time.sleep(0.1)  # it is about to listen
        begun = time.monotonic()

        def send() -> None:
            while not stopping.is_set():
                since = time.monotonic()
                code = _ask(port, text, kind)
                seen.monster = f"{code} after {time.monotonic() - since:.1f} s"
                if not requests:
                    return

        asking = threading.Thread(target=send, daemon=True)
        asking.start()
        time.sleep(0.2)
        while len(seen.codes) < requests or (not requests and time.monotonic() - begun < seconds):
            since = time.monotonic()
            seen.codes.append(_ask(port, SMALL, "text" if len(seen.codes) % 2 else "html"))
            seen.seconds.append(time.monotonic() - since)
            if not asking.is_alive() and len(seen.codes) > 2:
                break
            time.sleep(0.3)
        stopping.set()
        since = time.monotonic()
        process.send_signal(signal.SIGTERM)
        seen.exit_code = process.wait(10 * STOPPED)
        seen.stopped = time.monotonic() - since
        asking.join(5)
    finally:
        process.kill()
        process.wait()
    return seen


def _ask(port: int, text: str, kind: str) -> int:
    """The code of the answer; 0 is a broken connection."""
    body: dict[str, Any] = {"q": text, "source": "de", "target": "en", "format": kind}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    try:
        connection.request("POST", "/translate", json.dumps(body), {"Content-Type": "application/json"})
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()


def main() -> None:
    """Measure, show a table, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store")
    parser.add_argument("--threads", type=int, default=2, help="of the model")
    parser.add_argument("--seconds", type=float, default=6, help="that small requests are sent beside each monster")
    parser.add_argument("--requests", type=int, default=0, help="so many small requests, in place of --seconds")
    parser.add_argument("--only", action="append", help="monsters whose names begin so")
    given = parser.parse_args()
    arguments = ["--threads", str(given.threads), *(["--store", given.store] if given.store else [])]
    missed = 0
    print("| monster | its answer | small requests | median, s | p95, s | slowest, s | SIGTERM to end, s |")
    print("|---|---|---|---|---|---|---|")
    for name, (text, kind) in monsters().items():
        if given.only and not name.startswith(tuple(given.only)):
            continue
        seen = measure(arguments, text, kind, given.seconds, given.requests)
        missed += not seen.met
        codes = ", ".join(f"{seen.codes.count(code)}× {code}" for code in sorted(set(seen.codes)))
        figures = " | ".join(f"{seen.percentile(share):.2f}" for share in (0.5, 0.95))
        figures += f" | {seen.slowest:.2f} | {seen.stopped:.1f}{'' if seen.met else ' MISSED'}"
        print(f"| {name} | {seen.monster} | {codes} | {figures} |".replace("<", "&lt;"), flush=True)
    if missed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
