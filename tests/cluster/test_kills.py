"""Twenty kills of workers and five of the driver: in the end the store of an undisturbed build, to the byte; and a
translation whose driver is killed."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.build import cut
from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.cluster.build import ray_runner
from knnmt.cluster.connection import ClusterSettings
from knnmt.model.checkpoint import Model, load

from ..build.examples import parallel_text
from ..build.small import files

WORKERS, DRIVERS = 20, 5  # kills
SETTINGS = BuildSettings(cluster_size=4, k_max=7, clean=None, batch_tokens=64, part_tokens=150)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def begun(model: Path, corpus: Path, out: Path) -> "subprocess.Popen[bytes]":
    """A build on a cluster of its own, in a process of its own."""
    command = [sys.executable, "-m", "tests.cluster.test_kills", *map(str, (model, corpus, out))]
    return subprocess.Popen(command, cwd=Path(__file__).parents[2])


def workers(driver: int) -> list[int]:
    """The processes of the actors below a driver."""
    found, parents = [], [driver]
    while parents:
        parent = parents.pop()
        for task in Path(f"/proc/{parent}/task").glob("*/children"):
            children = [int(child) for child in task.read_text().split()]
            parents += children
            names = [(child, Path(f"/proc/{child}/cmdline").read_bytes()) for child in children]
            found += [child for child, name in names if name.startswith(b"ray::BuildWorker")]
    return found


@pytest.mark.usefixtures("short_runs")
def test_kills_of_workers_and_drivers(model: Model, model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[ray]'")
    corpus = parallel_text(tmp_path / "corpus.tsv", 400)
    build([corpus], model, tmp_path / "plain", "de-en", SETTINGS)
    rng, killed, ended, rounds = random.Random(1), 0, 0, 0
    while killed < WORKERS or ended < DRIVERS:
        rounds += 1
        assert rounds < 40
        out = tmp_path / f"store-{rounds}"
        drivers = 0
        while True:
            process = begun(model_folder("marian"), corpus, out)
            kill_driver = ended < DRIVERS and drivers == 0
            until = time.monotonic() + rng.uniform(8, 20)
            while process.poll() is None:
                time.sleep(rng.uniform(0.05, 1.0))
                if kill_driver and time.monotonic() > until:
                    process.kill()
                    ended, drivers = ended + 1, drivers + 1
                    process.wait()
                elif killed < WORKERS and (alive := workers(process.pid)):
                    try:
                        os.kill(rng.choice(alive), signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed += 1
                    time.sleep(rng.uniform(2, 6))  # it takes seconds until the next one is at work
            if process.returncode == 0:
                break
            assert process.returncode == -signal.SIGKILL
            assert not (out / "manifest.json").exists() or files(out) == files(tmp_path / "plain")
        assert files(out) == files(tmp_path / "plain")
        assert not out.with_name(f"{out.name}.building").exists()
    assert (killed, ended) == (WORKERS, DRIVERS)


def test_a_translation_whose_driver_is_killed_is_resumed(model_folder: Callable[[str], Path], tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed: pip install 'knnmt[ray]'")
    lines = [line.split("\t")[0] for line in parallel_text(tmp_path / "c.tsv", 300).read_text("utf-8").splitlines()]
    (tmp_path / "in").write_text("\n".join(lines * 10) + "\n", "utf-8")
    command = [sys.executable, "-m", "knnmt", "translate", str(tmp_path / "in"), "--langs", "de-en", "--threads", "1"]
    command += ["--model", str(model_folder("marian")), "--device", "cpu", "-o"]
    subprocess.run([*command, str(tmp_path / "plain")], check=True)
    on_ray = [*command, str(tmp_path / "out"), "--ray", "local", "--ray-workers", "2", "--window", "20"]
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would ours
    notes, seen = tmp_path / ".out.part.json", 0
    for kill in (signal.SIGKILL, signal.SIGINT, None):
        process = subprocess.Popen(on_ray, stderr=subprocess.PIPE)
        while kill is not None and process.poll() is None:
            time.sleep(0.01)
            if notes.exists() and (now := json.loads(notes.read_bytes())["lines"]) >= seen + 100:
                seen = now
                process.send_signal(kill)
                break
        said = process.communicate()[1].decode()
        if kill is signal.SIGINT:
            assert process.returncode == 130
            assert "lines kept: the same command resumes the work" in said
            assert "Traceback" not in said
    assert process.returncode == 0
    assert "resumed after line" in said
    assert (tmp_path / "out").read_bytes() == (tmp_path / "plain").read_bytes()


def main() -> None:
    cut.RUN = 1
    folder, corpus, out = sys.argv[1:]
    model = load(folder, langs="de-en", device="cpu")
    with ray_runner(ClusterSettings("local", workers=2, device="cpu"), folder, "de-en", model.fingerprint) as runner:
        build([Path(corpus)], model, Path(out), "de-en", SETTINGS, runner=runner)


if __name__ == "__main__":
    main()
