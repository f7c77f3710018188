"""A build on a Ray cluster of this machine: what one process makes, to the byte; and what needs no cluster.

One test starts the one cluster there is, which takes seconds; it ends with the test, however that ends.
"""

import contextlib
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from knnmt import __version__
from knnmt.build.build import build
from knnmt.build.pieces import Here, Piece
from knnmt.build.plan import Work
from knnmt.build.settings import BuildSettings
from knnmt.cli.app import app
from knnmt.cli.lines import resumed
from knnmt.cluster import translate as cluster_translate
from knnmt.cluster.build import RayRunner
from knnmt.cluster.connection import Cluster, ClusterSettings, connected, require_version
from knnmt.cluster.translate import RayTranslator
from knnmt.decode.settings import TranslateSettings
from knnmt.errors import DataError, UsageError
from knnmt.model.checkpoint import Model
from knnmt.translate import Translator

from ..build.examples import parallel_text
from ..build.small import files

SETTINGS = BuildSettings(cluster_size=4, k_max=7, clean=None, batch_tokens=64, part_tokens=150)


def refuse(work: Work) -> None:
    raise DataError("line 3: no text")


class Killing:
    """A runner that kills a worker when the first piece is done."""

    def __init__(self, runner: RayRunner) -> None:
        self.runner, self.device, self.precision, self.killed = runner, runner.device, runner.precision, 0

    def run(self, work: Work, pieces: Sequence[Piece]) -> None:
        def kill(stage: str, done: int, total: int | None) -> None:
            if done and len(pieces) > 2 and not self.killed:
                self.killed = self.runner.cluster.get(self.runner.actors[0].process.remote())
                os.kill(self.killed, signal.SIGKILL)

        work.progress = kill
        self.runner.run(work, pieces)


@pytest.mark.usefixtures("short_runs")
def test_a_build_on_ray_is_that_of_one_process(
    model: Model, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    """Also where a worker is killed in between."""
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[ray]'")
    corpus = parallel_text(tmp_path / "corpus.tsv", 60)
    build([corpus], model, tmp_path / "plain", "de-en", SETTINGS)
    folder = str(model_folder("marian"))
    with connected(ClusterSettings("local", workers=2)) as cluster:
        runner = Killing(RayRunner(cluster, folder, "de-en", model.fingerprint))
        report = build([corpus], model, tmp_path / "ray", "de-en", SETTINGS, runner=runner)
        assert files(tmp_path / "ray") == files(tmp_path / "plain")
        assert len(list((tmp_path / "ray").glob("part-*"))) > 2
        assert runner.killed
        assert not (tmp_path / "ray.building").exists()
        assert report.seconds["represent"] > 0

        (tmp_path / "work").mkdir()
        work = Work(tmp_path / "work", model, SETTINGS, 1)
        with pytest.raises(UsageError, match=r"does not see .*: build in a folder that all machines share"):
            runner.runner.run(work, [Piece("one", "one", refuse)])
        (tmp_path / "work" / "plan").touch()
        with pytest.raises(DataError, match=r"^line 3: no text$"):
            runner.runner.run(work, [Piece("one", "one", refuse)])

        started = cluster.ray.get_runtime_context().gcs_address
    with pytest.raises(OSError, match="refused"):
        socket.create_connection((started.split(":")[0], int(started.split(":")[1])), 5)  # nothing is left running


class Stage:
    """In place of Ray: one actor in this process, asked for each result when it is fetched, and how many wait."""

    settings = ClusterSettings()

    def __init__(self) -> None:
        self.waiting = self.most = 0

    @property
    def ray(self) -> "Stage":
        return self

    def start(self, kind: Any, *arguments: Any) -> list[Any]:
        actor = kind(__version__, "cpu", "auto", *arguments)
        names = ("translate", "fingerprint")
        return [type("Actor", (), {name: self.method(getattr(actor, name)) for name in names}) for _ in range(2)]

    def method(self, call: Callable[..., Any]) -> Any:
        def remote(*arguments: Any) -> Callable[[], Any]:
            self.waiting += 1
            self.most = max(self.most, self.waiting)
            return lambda: call(*arguments)

        return SimpleNamespace(remote=remote)

    def wait(self, results: list[Any], num_returns: int, timeout: float) -> tuple[list[Any], list[Any]]:
        return [], results

    def get(self, result: Callable[[], Any]) -> Any:
        self.waiting -= 1
        return result()


def test_lines_are_translated_in_order_with_a_window_of_blocks(
    model: Model, model_folder: Callable[[str], Path], built: Path, corpus: Path
) -> None:
    cluster: Any = Stage()
    settings, options = TranslateSettings(beam=2), {"model": model_folder("marian"), "store": built, "langs": "de-en"}
    translator = RayTranslator(cluster, options, settings, None)
    assert translator.fingerprint == model.fingerprint
    lines = [*(line.split("\t")[0] for line in corpus.read_text("utf-8").splitlines()[:60]), ""]
    seen: list[int] = []
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for text in lines:
            read += 1
            yield text

    stream = translator.stream(texts(), 5, seen.append)
    found = [next(stream)]
    assert read == cluster.most * 5 == 30
    found += stream
    assert cluster.most == 6
    expected = list(Translator(model, built).stream(lines, settings))
    assert [each.text for each in found] == [each.text for each in expected]
    assert [each.match for each in found] == [each.match for each in expected]
    assert sum(seen) == len(lines)
    with pytest.raises(DataError, match=r"^in lines 6 to 10: text 2 has a lone surrogate"):
        list(translator.stream([*lines[:6], "\ud800", *lines[:6]], 5))


def test_a_translation_is_resumed_after_the_lines_that_it_noted(tmp_path: Path) -> None:
    out = tmp_path / "out"

    def interrupted(lines: int, noted: int) -> None:
        with resumed(out, "plan") as file:
            for number in range(1, lines + 1):
                file.write(f"ü{number}\n")
                if number == noted:
                    file.note(number)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted(5, 3)
    assert not out.exists()
    with resumed(out, "plan") as file:
        assert file.lines == 3
        file.write("ü4 again\n")
    assert out.read_text("utf-8") == "ü1\nü2\nü3\nü4 again\n"
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    with pytest.raises(KeyboardInterrupt):
        interrupted(2, 1)
    with resumed(out, "another plan") as file:  # another input or other settings: from the beginning
        assert file.lines == 0
    assert out.read_bytes() == b""


def test_an_interrupted_translation_is_resumed_by_the_same_command(
    model: Model, model_folder: Callable[[str], Path], corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[ray]'")

    class Failing(Stage):
        """One that is interrupted, as by ^C, when it has given so many blocks."""

        def __init__(self, blocks: int) -> None:
            super().__init__()
            self.blocks = blocks

        def get(self, result: Callable[[], Any]) -> Any:
            self.blocks -= 1
            if self.blocks < 0:
                raise KeyboardInterrupt
            return super().get(result)

    stages: list[Failing] = []

    @contextlib.contextmanager
    def connected(settings: ClusterSettings) -> Iterator[Any]:
        yield stages[-1]

    monkeypatch.setattr(cluster_translate, "connected", connected)
    lines = [line.split("\t")[0] for line in corpus.read_text("utf-8").splitlines()[:40]]
    (tmp_path / "in").write_text("\n".join(lines) + "\n", "utf-8")
    folder = str(model_folder("marian"))
    command = ["translate", str(tmp_path / "in"), "--model", folder, "--langs", "de-en", "--beam", "2", "-o"]
    assert CliRunner().invoke(app, [*command, str(tmp_path / "plain")]).exit_code == 0
    on_ray = [*command, str(tmp_path / "out"), "--ray", "local", "--window", "5"]
    stages.append(Failing(4))  # the fingerprint, and three blocks
    done = CliRunner().invoke(app, on_ray)
    assert done.exit_code == 130
    assert "15 lines kept: the same command resumes the work" in done.output
    assert not (tmp_path / "out").exists()
    stages.append(Failing(100))
    done = CliRunner().invoke(app, on_ray)
    assert done.exit_code == 0, done.output
    assert "resumed after line 15" in done.output
    assert stages[-1].blocks == 100 - 1 - 5
    assert (tmp_path / "out").read_bytes() == (tmp_path / "plain").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"in", "plain", "out"}


def test_pieces_run_here_in_their_order() -> None:
    made: list[str] = []
    pieces = [Piece(name, name, lambda work, name=name: made.append(name)) for name in "abc"]  # type: ignore[misc]
    Here.run(Here.__new__(Here), None, pieces)  # type: ignore[arg-type]
    assert made == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--ray-workers", "2"], "--ray-workers needs --ray"),
        (["--ray", "somewhere"], "--ray takes host:port, auto or local, not 'somewhere'"),
        (["--ray", "ray://head:10001"], "cannot connect to Ray at ray://head:10001: give host:port, and run"),
        (["--ray", "127.0.0.1:9"], "cannot connect to Ray at 127.0.0.1:9: Connection refused"),
    ],
)
def test_a_wrong_address_is_one_clear_line(
    arguments: list[str], said: str, model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[ray]'")
    corpus = parallel_text(tmp_path / "corpus.tsv", 5)
    command = ["build", str(corpus), "--langs", "de-en", "--out", str(tmp_path / "store")]
    done = CliRunner().invoke(app, [*command, "--model", str(model_folder("marian")), *arguments])
    assert done.exit_code == 2
    assert done.output.startswith(f"knnmt: {said}")
    assert done.output.count("\n") == 1


def test_without_ray_its_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    corpus = parallel_text(tmp_path / "corpus.tsv", 5)
    for command in (["build", str(corpus), "--langs", "de-en", "--out", "store"], ["translate", str(corpus)]):
        done = CliRunner().invoke(app, [*command, "--ray", "local"])
        assert done.output == "knnmt: ray is not installed: pip install 'knnmt[ray]'\n"
        assert done.exit_code == 1


def test_ray_translates_lines_not_documents(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[ray]'")
    (tmp_path / "page.html").write_text("<p>Hund</p>", "utf-8")
    done = CliRunner().invoke(app, ["translate", str(tmp_path / "page.html"), "--ray", "local"])
    assert done.exit_code == 2
    assert "--ray is for plain text, one segment per line: translate documents without it" in done.output


def test_workers_have_the_same_version() -> None:
    with pytest.raises(UsageError, match=r"but the command runs 0\.0: install the same version on all machines"):
        require_version("0.0")


@pytest.mark.parametrize(
    ("has", "asked", "workers", "gpu"),
    [
        ({"CPU": 8.0}, {}, 8, False),
        ({"CPU": 8.0}, {"threads": 3}, 2, False),
        ({"CPU": 8.0, "GPU": 2.0}, {}, 2, True),
        ({"CPU": 8.0, "GPU": 2.0}, {"device": "cpu", "workers": 3}, 3, False),
        ({"CPU": 8.0, "GPU": 2.0}, {"workers": 3}, 0, True),
        ({"CPU": 8.0}, {"device": "cuda"}, 0, True),
        ({"CPU": 2.0}, {"threads": 4}, 0, False),
    ],
)
def test_workers_are_one_a_gpu_or_one_a_core(
    has: dict[str, float], asked: dict[str, Any], workers: int, gpu: bool
) -> None:
    ray: Any = type("Ray", (), {"cluster_resources": lambda: has})
    if not workers:
        with pytest.raises(UsageError, match=r"too few for .* use fewer"):
            Cluster(ray, ClusterSettings(**asked))
        return
    cluster = Cluster(ray, ClusterSettings(**asked))
    assert (cluster.workers, cluster.gpu) == (workers, gpu)
