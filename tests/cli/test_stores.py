"""build, inspect, verify."""

import contextlib
import json
import os
import pty
import shutil
import signal
import threading
import time
from pathlib import Path

from ..build.examples import parallel_text
from .process import begun, fine, knnmt, refused

LANGS = ("-l", "de-en")
SMALL = ("--no-clean", "--cluster-size", "16")


def test_build_reports_and_is_not_repeated(tiny: Path, corpus: Path, tmp_path: Path) -> None:
    common = ("build", corpus, *LANGS, "-m", tiny, "-o", tmp_path / "store", *SMALL, "--for", "faster")
    done = fine(knnmt(*common))
    assert "kept 200 segments" in done
    assert "; built in " in done
    assert "already built" in fine(knnmt(*common))
    refused(knnmt(*common, "--seed", "2"), 2, "another datastore", "--replace")
    report = json.loads(fine(knnmt(*common, "--seed", "2", "--replace", "--k-max", "0", "--json")))
    assert report["kept"] == 200
    assert {"read", "align", "represent", "cluster", "seal"} <= set(report["seconds"])
    assert json.loads(fine(knnmt("inspect", tmp_path / "store", "--json")))["settings"]["k_max"] is None
    fine(knnmt("translate", "-m", tiny, "-s", tmp_path / "store", "--system", "faster", "--beam", "1", text="der Hund"))
    lacking = knnmt("translate", "-m", tiny, "-s", tmp_path / "store", "--system", "fast", text="der Hund")
    refused(lacking, 1, "was built without", "build")


def test_build_with_links_made_elsewhere(tiny: Path, tmp_path: Path) -> None:
    corpus = parallel_text(tmp_path / "x.tsv", 40)
    done = knnmt("align", corpus, *LANGS, "-m", tiny, "-o", tmp_path / "links")
    assert done.returncode == 0, done.stderr
    common = ("build", corpus, *LANGS, "-m", tiny, "-o", tmp_path / "store")
    assert "kept 40 segments" in fine(knnmt(*common, "--alignments", tmp_path / "links"))
    links = (tmp_path / "links").read_text().splitlines(keepends=True)
    (tmp_path / "short").write_text("".join(links[:-1]))
    refused(knnmt(*common, "--replace", "--alignments", tmp_path / "short"), 1, "short")
    refused(knnmt(*common, "--replace", "--alignments", tmp_path / "none"), 2, "none")


def test_wrong_use_of_build(tiny: Path, corpus: Path, tmp_path: Path) -> None:
    out = ("-o", tmp_path / "store")
    no_model = ("-m", tmp_path / "no-model")  # these are refused before a model is looked for
    refused(knnmt("build", tmp_path / "none.tmx", *LANGS, *no_model, *out), 2, "none.tmx")
    refused(knnmt("build", corpus, *LANGS, *no_model, *out, "--for", "fastest"), 2, "fastest", "faster-exact")
    refused(knnmt("build", corpus, *LANGS, *no_model, *out, "--alignments", tmp_path / "none"), 2, "none")
    refused(knnmt("build", corpus, *LANGS, *no_model, *out, "--cluster-size", "0"), 2, "--cluster-size")
    refused(knnmt("build", corpus, *LANGS, *no_model, *out), 2, "no model at")
    refused(knnmt("build", corpus, *LANGS, "-m", tiny, "-o", tmp_path / "no" / "store"), 2, "no folder")
    assert list(tmp_path.iterdir()) == []


def test_inspect_and_verify(store: Path, tmp_path: Path) -> None:
    shown = fine(knnmt("inspect", store, COLUMNS="80"))
    assert max(map(len, shown.splitlines())) <= 80
    assert "target_keys.npy" in shown
    content = json.loads(fine(knnmt("inspect", store, "--json")))
    assert content["counts"]["segments"] == 200
    assert sum(content["frequencies"].values()) > 10
    assert "is sound" in fine(knnmt("verify", store))
    told = json.loads(fine(knnmt("verify", store, "--full", "--json")))
    assert told["full"]
    assert told["bytes"] == sum(content["bytes"].values())
    refused(knnmt("inspect", tmp_path), 1, "no datastore")


def test_a_damaged_store_is_told_in_a_line(store: Path, tmp_path: Path) -> None:
    broken = tmp_path / "store"
    shutil.copytree(store, broken)
    keys = next(broken.rglob("target_keys.npy"))
    content = bytearray(keys.read_bytes())
    content[-9] ^= 255
    keys.write_bytes(content)
    fine(knnmt("verify", broken))  # the size is right
    refused(knnmt("verify", broken, "--full"), 1, "target_keys.npy")
    keys.write_bytes(content[:-8])
    for command in ("inspect", "verify"):
        refused(knnmt(command, broken), 1, "target_keys.npy")
    (broken / "manifest.json").write_text("{")
    refused(knnmt("inspect", broken), 1, "manifest.json")


def test_an_interrupted_build_says_so_and_is_finished_by_the_same_command(tiny: Path, tmp_path: Path) -> None:
    corpus = parallel_text(tmp_path / "x.tsv", 4000)
    arguments = ["build", str(corpus), *LANGS, "-m", str(tiny), "-o", str(tmp_path / "store"), *SMALL]
    process = begun(*arguments)
    work = tmp_path / "store.building"
    until = time.monotonic() + 60
    while not (work / "corpus.align.done").exists() and time.monotonic() < until:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr) == (130, "", "knnmt: interrupted\n")
    assert not (tmp_path / "store").exists()
    report = json.loads(fine(knnmt(*arguments, "--json")))
    assert "read" not in report["seconds"]
    assert report["kept"] == 4000
    fine(knnmt("verify", tmp_path / "store", "--full"))


def test_a_full_disk_is_told_in_a_line(tiny: Path, corpus: Path, tmp_path: Path) -> None:
    arguments = ("build", corpus, *LANGS, "-m", tiny, "-o", tmp_path / "store", *SMALL)
    stopped = knnmt(*arguments, largest=20_000)
    refused(stopped, 1, "File too large", "store.building", " free on the file system at ", "the same command resumes")
    assert "kept 200 segments" in fine(knnmt(*arguments))


def test_progress_is_shown_on_a_terminal_and_leaves_no_trace(tiny: Path, corpus: Path, tmp_path: Path) -> None:
    main, terminal = pty.openpty()
    arguments = ("build", corpus, *LANGS, "-m", tiny, "-o", tmp_path / "store", *SMALL, "--json")
    shown = b""

    def watch() -> None:
        nonlocal shown
        with contextlib.suppress(OSError):  # the end of a terminal
            while some := os.read(main, 4096):
                shown += some

    watcher = threading.Thread(target=watch)
    watcher.start()
    done = knnmt(*arguments, terminal=os.ttyname(terminal), TERM="xterm")
    os.close(terminal)
    watcher.join()
    os.close(main)
    assert json.loads(fine(done))["kept"] == 200
    for stage in (b"read", b"align", b"represent", b"cluster"):
        assert stage in shown
    assert shown.rstrip().endswith(b"\x1b[2K")  # the last line is cleared


def test_both_sides_of_a_pair_may_be_named(tiny: Path, corpus: Path, tmp_path: Path) -> None:
    rows = [line.split("\t") for line in corpus.read_text(encoding="utf-8").splitlines()]
    for side, name in enumerate(("x.de", "x.en")):
        (tmp_path / name).write_text("".join(row[side] + "\n" for row in rows), encoding="utf-8")
    files = tmp_path / "x.de", tmp_path / "x.en"
    note = f"{files[0]} and {files[1]}: read as one parallel corpus\n"
    assert json.loads(fine(knnmt("stats", *files, *LANGS, "--json"), note))["pairs"] == 200
    built = fine(knnmt("build", *files, *LANGS, "-m", tiny, "-o", tmp_path / "store", *SMALL), note)
    assert "kept 200 segments" in built


def test_a_corpus_of_nothing_leaves_nothing(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("\t\n \tx\n")
    common = ("build", tmp_path / "x.tsv", *LANGS, "-m", tiny, "-o", tmp_path / "store")
    refused(knnmt(*common), 1, "nothing to store", "kept 0 of 2 segments", "2 empty")
    assert [path.name for path in tmp_path.iterdir()] == ["x.tsv"]


def test_a_store_whose_build_was_interrupted_is_told_as_such(tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "store.building").mkdir()
    asked = knnmt("translate", "-m", tiny, "-s", tmp_path / "store", text="a\n")
    refused(asked, 1, "was interrupted", "store.building", "same command")
