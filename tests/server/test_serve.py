"""`knnmt serve` as a process: it starts, answers, and ends as an operator wants it to."""

import contextlib
import json
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import httpx
import pytest
from typer.testing import CliRunner

import knnmt.cli  # noqa: F401  the commands register themselves
from knnmt.cli.app import app
from knnmt.errors import UsageError
from knnmt.server.access import add_key
from knnmt.server.listener import listening
from knnmt.server.settings import ServerSettings

from ..cli.process import PROGRAM
from ..forked import Forked, forked


def started(*arguments: str | Path, first: str = "") -> contextlib.AbstractContextManager[Forked]:
    """A server as a process, which runs a line of Python first."""
    return forked(f"{first}\n{PROGRAM}", "knnmt", "serve", "--port", "0", "--json", *arguments)


@pytest.fixture
def process(model_folder: Callable[[str], Path]) -> Iterator[Forked]:
    with started("--model", model_folder("marian"), "--langs", "de-en") as process:
        yield process


def ready(process: Forked) -> str:
    """The address of a server that takes requests."""
    line = process.stdout.readline()
    assert line, process.stderr.read()
    url = str(json.loads(line)["url"])
    while True:
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return url
        except httpx.TransportError:
            time.sleep(0.05)


@contextlib.contextmanager
def asking(url: str, asked: Mapping[str, object]) -> Iterator[tuple[threading.Thread, list[httpx.Response]]]:
    """A request of which some has been translated, and not all; and its answer, once it is there."""
    answers: list[httpx.Response] = []
    thread = threading.Thread(target=lambda: answers.append(httpx.post(f"{url}/translate", json=asked, timeout=60)))
    thread.start()
    while "knnmt_source_tokens_total 0.0" in httpx.get(f"{url}/metrics").text and thread.is_alive():
        time.sleep(0.01)
    assert thread.is_alive(), "the request should take longer than its first batch"
    yield thread, answers
    thread.join()


def test_a_server_told_to_stop_finishes_what_is_in_hand(process: Forked) -> None:
    url = ready(process)
    assert url.startswith("http://127.0.0.1:")
    asked = {"q": ["der Hund und die Katze schläft im Garten " * 5] * 200, "source": "de", "target": "en"}
    with asking(url, asked) as (thread, answers):
        process.send_signal(signal.SIGTERM)
        port = int(url.rpartition(":")[2])
        refused = False
        while thread.is_alive() and not refused:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
            except ConnectionRefusedError:
                refused = True
            except TimeoutError:
                pass  # it has no time to say no
            time.sleep(0.02)
    assert process.wait(30) == 0
    log = process.stderr.read()
    assert answers[0].status_code == 200, log
    assert len(answers[0].json()["translatedText"]) == 200
    assert re.search(r"POST /translate 200", log)
    assert "Hund" not in log
    assert "Traceback" not in log


def test_a_server_told_to_stop_does_not_wait_for_a_monster() -> None:
    with (
        started("--model", "mini-de-en", first="from knnmt.server import listener; listener.GRACE = 0.5") as process,
        asking(ready(process), {"q": "<a " * 16_000, "source": "de", "target": "en"}) as (_, answers),
    ):
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert time.monotonic() - begun < 5
        assert "Traceback" not in process.stderr.read()
    assert answers[0].status_code == 503
    assert "shutting down" in answers[0].json()["error"]


def test_a_key_is_made_and_shown_once(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", "--keys", str(tmp_path / "keys"), "--new-key", "weblate"])
    assert done.exit_code == 0
    assert len(done.stdout.strip()) == 43
    assert done.stdout.strip() not in (tmp_path / "keys").read_text()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--expires", "2020-01-01"], "expired on 2020-01-01"),
        (["--key-memories", ","], "name at least one memory"),  # the line would open all of them
        (["--key-memories", "hand book"], "without spaces"),  # the line could not be read
        (["--role", "boss"], "should be one of translate"),
    ],
)
def test_a_key_that_would_not_be_what_was_asked_for_is_refused(tmp_path: Path, options: list[str], told: str) -> None:
    arguments = ["serve", "--keys", str(tmp_path / "keys"), "--new-key", "weblate", *options]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert told in done.stderr
    assert not (tmp_path / "keys").exists()


def test_options_of_a_pair_are_not_ignored_beside_a_configuration(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["serve", "--config", str(tmp_path / "server.toml"), "--precision", "int8"])
    assert done.exit_code == 2
    assert "--precision cannot be combined with --config" in done.stderr


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in [name for name in sys.modules if name.startswith("knnmt.server")]:
        monkeypatch.delitem(sys.modules, name)
    done = CliRunner().invoke(app, ["serve"])
    assert done.exit_code == 1
    assert "knnmt[server]" in done.stderr


def test_a_port_that_is_taken_is_told() -> None:
    with listening(ServerSettings(port=0)) as taken:
        taken.listen()
        with pytest.raises(UsageError, match="--port"):
            listening(ServerSettings(port=taken.getsockname()[1]))


def test_a_server_listens_to_this_machine_alone_unless_told_otherwise() -> None:
    with listening(ServerSettings(port=0)) as place:
        assert place.getsockname()[0] == "127.0.0.1"


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="no such signal")
def test_a_hangup_reads_the_keys_again(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    first = add_key(keys, "first")
    with started("--model", model_folder("marian"), "--langs", "de-en", "--keys", keys) as process:
        url = ready(process)
        second = add_key(keys, "second")

        def known(key: str) -> bool:
            return httpx.get(f"{url}/v1/me", headers={"Authorization": f"Bearer {key}"}).status_code == 200

        assert known(first)
        assert not known(second)
        process.send_signal(signal.SIGHUP)
        until = time.monotonic() + 10
        while not known(second) and time.monotonic() < until:
            time.sleep(0.05)
        assert known(second)
        keys.write_text("nonsense")
        process.send_signal(signal.SIGHUP)
        time.sleep(0.3)
        assert known(first)
