"""bench."""

import json
from pathlib import Path

from .process import fine, knnmt, refused


def test_bench(tiny: Path, store: Path, tmp_path: Path) -> None:
    text = tmp_path / "in.de"
    text.write_text("der Hund\ndie Katze sieht das Haus\n\nder Baum im Garten\n", encoding="utf-8")
    out = tmp_path / "results.json"
    options = ("-s", store, "-m", tiny, "--threads", "1", "--batch-size", "2", "--beam", "2", "--no-first-pass")
    few = "note: 2 rounds are few for an interval: give 10 or more (--pairs)\n"
    shown = fine(knnmt("bench", text, *options, "--pairs", "2", "--systems", "base,fast,faster", "-o", out), few)
    for word in ("times base", "95% interval", "fast", "faster", "lookup", "λ=1e-30", "3 segments"):
        assert word in shown
    content = json.loads(out.read_text(encoding="utf-8"))
    assert [row["system"] for row in content["speed"]] == ["base", "fast", "faster"]
    assert content["speed"][1]["ratio"]["low"] <= content["speed"][1]["ratio"]["high"]
    assert content["machine"]["threads"] == 1
    assert content["versions"]["torch"]
    assert content["settings"]["lambda"] == 1e-30

    swept = knnmt(
        "bench", text, *options, "--pairs", "2", "--systems", "faster", "--sweep", "k=1,4096", "--engines", "--json"
    )
    content = json.loads(fine(swept))
    timed = [(row["system"], row["k"]) for row in content["speed"]]
    assert timed[:3] == [("base", None), ("faster", 1), ("generate()", None)]
    other = content["speed"][2]
    assert other["same"] == other["segments"] == 3
    assert other["first"] is None
    assert ("faster", "k=4096") in [(left["system"], left["what"]) for left in content["skipped"]]

    shown = fine(knnmt("bench", text, *options, "--systems", "faster", "--memory", "1"))
    assert "twice as many" in shown


def test_bench_of_synthetic_stores(tmp_path: Path) -> None:
    out = tmp_path / "growth.json"
    shown = fine(
        knnmt(
            "bench", "--synthetic", "2000,5e3", "--width", "8", "--systems", "faster", "--threads", "1",
            "--scratch", tmp_path, "-o", out,
        )
    )  # fmt: skip
    assert "from 2,000 to 5,000 tokens" in shown
    assert [row["tokens"] for row in json.loads(out.read_text(encoding="utf-8"))["growth"]] == [2000, 5000]
    assert [path.name for path in tmp_path.iterdir()] == ["growth.json"]


def test_bench_refuses(tiny: Path, tmp_path: Path) -> None:
    text = tmp_path / "in.de"
    text.write_text("der Hund\n")
    refused(knnmt("bench"), 2, "--synthetic")
    refused(knnmt("bench", text, "--synthetic", "1e5"), 2, "not both")
    refused(knnmt("bench", "--synthetic", "many"), 2, "1e5,1e6")
    refused(knnmt("bench", text, "--systems", "fastest"), 2, "no system 'fastest'")
    refused(knnmt("bench", text, "-m", tiny, "--systems", "fast"), 2, "--store")
    refused(knnmt("bench", text, "--pairs", "1"), 2, "--pairs")
    refused(knnmt("bench", text, "--sweep", "q=1"), 2, "cannot sweep")
