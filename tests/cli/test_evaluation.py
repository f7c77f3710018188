"""evaluate, tune."""

import json
from pathlib import Path

import pytest

from knnmt.corpus import Languages, read
from knnmt.retrieval.tuned import Tuned

from ..build.examples import parallel_text
from .process import fine, knnmt, refused


def test_evaluate(tmp_path: Path) -> None:
    for name, text in (
        ("ref", "the dog runs home\n" * 9),
        ("a", "the dog runs home\n" * 9),
        ("b", "the cat runs home\n" * 9),
    ):
        (tmp_path / name).write_text(text)
    done = knnmt("evaluate", tmp_path / "ref", tmp_path / "a", tmp_path / "b")
    assert done.returncode == 0, done.stderr
    assert "100.00" in done.stdout
    assert "tok:13a" in done.stdout
    found = json.loads(knnmt("evaluate", tmp_path / "ref", tmp_path / "a", "--json").stdout)
    assert found["scores"][str(tmp_path / "a")][0]["value"] == pytest.approx(100)
    (tmp_path / "short").write_text("the dog\n")
    refused(knnmt("evaluate", tmp_path / "ref", tmp_path / "short"), 1, "short has 1 lines", "have 9")
    refused(knnmt("evaluate", tmp_path / "ref", tmp_path / "a", tmp_path / "a"), 2, "given twice")


def test_evaluate_says_what_a_store_knows(store: Path, corpus: Path, tmp_path: Path) -> None:
    targets = [segment.target for segment in read(corpus, Languages("de", "en")) if len(segment.target) > 20][:3]
    (tmp_path / "ref").write_text("\n".join([*targets, "nothing of the kind was ever stored"]) + "\n")
    done = knnmt("evaluate", tmp_path / "ref", tmp_path / "ref", "--store", store)
    note = "note: the store has 3 word for word and 0 nearly of 4 references: measured on text that it knows\n"
    assert "100.00" in fine(done, note)
    content = json.loads(fine(knnmt("evaluate", tmp_path / "ref", tmp_path / "ref", "-s", store, "--json"), note))
    assert content["overlaps"] == {"exact": 3, "near": 0}
    (tmp_path / "new").write_text("nothing of the kind was ever stored\n")
    fine(knnmt("evaluate", tmp_path / "new", tmp_path / "new", "-s", store))
    refused(
        knnmt("evaluate", tmp_path / "ref", tmp_path / "ref", "-s", tmp_path / "none"), 1, "no datastore", "knnmt build"
    )


def test_evaluate_beside_a_translation_memory(store: Path, corpus: Path, tmp_path: Path) -> None:
    segments = [segment for segment in read(corpus, Languages("de", "en")) if len(segment.source.split()) > 4][:2]
    near = " ".join(["anders", *segments[1].source.split()[1:]])
    (tmp_path / "source").write_text(f"{segments[0].source}\n{near}\nganz neu hier\n")
    (tmp_path / "ref").write_text(f"{segments[0].target}\n{segments[1].target}\nquite new here\n")
    (tmp_path / "base").write_text("one\ntwo\nquite new here\n")
    asked = (
        "evaluate",
        tmp_path / "ref",
        tmp_path / "base",
        "--store",
        store,
        "--source",
        tmp_path / "source",
        "--json",
    )
    scores = json.loads(knnmt(*asked).stdout)["scores"]
    assert scores["tm"][0]["value"] == pytest.approx(
        100
    )  # two matches, and the first system's text where there is none
    assert scores[str(tmp_path / "base")][0]["value"] < 60
    exact = json.loads(knnmt(*asked, "--threshold", "1").stdout)["scores"]["tm"][0]["value"]
    assert scores[str(tmp_path / "base")][0]["value"] < exact < 100
    refused(knnmt(*asked[:3], "--source", tmp_path / "source"), 2, "--store")
    (tmp_path / "short").write_text("eins\n")
    refused(knnmt(*asked[:5], "--source", tmp_path / "short"), 2, "has 1 lines and the translations have 3")


def test_tune(tiny: Path, store: Path, corpus: Path, tmp_path: Path) -> None:
    dev = parallel_text(tmp_path / "dev.tsv", 16, seed=5)
    with dev.open("a", encoding="utf-8") as file:
        file.writelines(corpus.read_text(encoding="utf-8").splitlines(keepends=True)[:4])
    out, options = tmp_path / "settings.json", ("-l", "de-en", "-m", tiny, "-s", store, "--decoded", "2")
    done = knnmt("tune", dev, *options, "--system", "fast", "-o", out)
    assert done.returncode == 0, done.stderr
    note, *other = done.stderr.splitlines()
    assert note.startswith("note: the store has ")
    assert "of 20 dev segments: left out" in note
    assert all("base MT" in line or "at the end of what is searched" in line for line in other)
    scores = [float(row.split()[0]) for row in done.stdout.splitlines() if row.strip()[:1].isdigit()]
    assert 3 <= len(scores) <= 11
    assert scores == sorted(scores, reverse=True)
    assert "base MT" in done.stdout

    saved, settings = json.loads(out.read_text(encoding="utf-8")), Tuned.load(out).settings
    assert settings.system == saved["system"] == "fast"
    assert saved["bleu"] == pytest.approx(scores[0], abs=0.01)
    assert saved["dev"] == [str(dev)]
    assert saved["segments"] == 20
    assert saved["store"] == str(store)
    assert saved["overlaps"]["exact"] >= 4
    assert saved["overlaps"]["excluded"]
    fine(knnmt("translate", "-m", tiny, "-s", store, "--settings", out, "--beam", "1", text="der Hund\n"))

    done = knnmt("tune", dev, *options, "--system", "knn", "--adapt", "learned", "--json")
    assert done.returncode == 0, done.stderr
    assert {trial["settings"]["adapt"] for trial in json.loads(done.stdout)["trials"]} >= {"distance", "learned"}

    told = knnmt(
        "tune", dev, *options, "--system", "faster", "--adapt", "constant", "--limit", "9", "--keep-overlaps", "--json"
    )
    assert told.returncode == 0, told.stderr
    content = json.loads(told.stdout)
    assert content["segments"] == 9
    assert not content["overlaps"]["excluded"]
    assert {trial["settings"]["adapt"] for trial in content["trials"]} == {"constant"}
    assert 0 < min(trial["settings"]["lambda"] for trial in content["trials"]) < 1e-6  # base MT, and lessons
    assert content["bleu"] == max(trial["bleu"] for trial in content["trials"]) >= content["base_bleu"]


def test_wrong_use_of_tune(tiny: Path, store: Path, tmp_path: Path) -> None:
    dev = parallel_text(tmp_path / "dev.tsv", 4)
    options = ("-l", "de-en", "-m", tiny, "-s", store)
    refused(knnmt("tune", tmp_path / "none.tsv", *options), 2, "none.tsv")
    refused(knnmt("tune", dev, *options, "--system", "base"), 2, "no system 'base'", "fast")
    refused(knnmt("tune", dev, *options, "-o", tmp_path / "no" / "s.json"), 2, "no folder")
    refused(knnmt("tune", dev, *options, "-o", dev), 2, "is an input")
    for option in ("--decoded", "--beam", "--limit", "--nprobe"):  # bounds are those of the settings
        refused(knnmt("tune", dev, *options, option, "0"), 2, f"{option} should be greater than or equal to 1, not 0")
    refused(knnmt("tune", dev, "-l", "de-en", "-m", tiny, "-s", tmp_path / "none"), 1, "no datastore", "knnmt build")
    (tmp_path / "empty.tsv").write_text("")
    refused(knnmt("tune", tmp_path / "empty.tsv", *options), 2, "nothing to tune on")
