"""benchmarks/paper_gpu.py with a command that stands in for knnmt: what is run, in which order, and what is kept."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "paper_gpu.py"
STAND_IN = """
import sys, time, pathlib
given = sys.argv[1:]
value = lambda name: given[given.index(name) + 1]
with open("{log}", "a") as log:
    log.write(f"{{time.monotonic()}} begin {{' '.join(given)}}\\n")
place = pathlib.Path(value("--output" if given[0] == "bench" else "--out"))
time.sleep(0.02)
if given[0] == "bench":
    place.write_text("{{}}")
else:
    (place / "x" / "store").mkdir(parents=True)
    (place / ("results.json" if given[0] == "reproduce" else "manifest.json")).write_text("{{}}")
with open("{log}", "a") as log:
    log.write(f"{{time.monotonic()}} end {{' '.join(given)}}\\n")
sys.exit(1 if "sizes" in given[1] else 0)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[list[str]]]:
    """All of Koran; the folder that was made, and the lines that the stand-in wrote."""
    folder = tmp_path_factory.mktemp("window")
    (folder / "prepared" / "matches").mkdir(parents=True)
    (folder / "have").mkdir()
    (folder / "base-de-en").mkdir()
    (folder / "base-de-en" / "config.json").write_text("{}")
    had = {"domains": [{"name": "koran-knn"}]}
    (folder / "have" / "published-mini-de-en.json").write_text(json.dumps(had))
    (folder / "knnmt.py").write_text(STAND_IN.format(log=folder / "log"))
    arguments = [
        str(folder / "prepared"), str(folder / "out"), "--base", str(folder / "base-de-en"), "--have",
        str(folder / "have"), "--seconds", "100", "--domains", "koran", "--parallel", "4", "--device", "cpu",
        "--knnmt", f"{sys.executable} -S {folder / 'knnmt.py'}",
    ]  # fmt: skip
    subprocess.run([sys.executable, str(SCRIPT), *arguments], check=True, timeout=90)
    return folder / "out", [line.split(" ") for line in (folder / "log").read_text().splitlines()]


def test_every_run_leaves_its_results_and_no_store(ran: tuple[Path, list[list[str]]]) -> None:
    out, _ = ran
    made = {path.stem for path in (out / "json").glob("*.json")}
    assert {"quick-mini-de-en-koran-similar", "quick-base-de-en-koran-similar", "sizes-mini-de-en-koran-10000"} <= made
    assert {
        "published-base-de-en-koran-knn",
        "published-mini-de-en-koran-exact",
        "clusters-mini-de-en-koran-m8",
    } <= made
    assert "published-mini-de-en-koran-knn" not in made  # it was there
    assert len(list((out / "bench").glob("*.json"))) == 6
    assert not list(out.glob("runs/*-koran*/x/store"))


def test_what_failed_is_tried_once_more(ran: tuple[Path, list[list[str]]]) -> None:
    out, lines = ran
    begun = [line for line in lines if line[1] == "begin" and line[3].endswith("sizes.toml")]
    assert len(begun) == 2 * 5
    assert (out / "progress.txt").read_text().count("FAILED sizes") == 5


def test_the_first_results_come_first_and_times_are_measured_alone(ran: tuple[Path, list[list[str]]]) -> None:
    out, lines = ran
    first = [line.split(": ")[1] for line in (out / "begun.txt").read_text().splitlines()][:2]
    assert first == ["quick-mini-de-en-koran-similar", "quick-base-de-en-koran-similar"]
    timed = [number for number, line in enumerate(lines) if line[2] == "bench"]
    between = [line for number, line in enumerate(lines) if timed[0] < number < timed[-1] and number not in timed]
    assert not between
