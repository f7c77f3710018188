"""stats, align, shortlist."""

import json
from pathlib import Path

import pytest

from .process import fine, knnmt, refused


def test_stats(tmp_path: Path, tiny: Path) -> None:
    (tmp_path / "x.tsv").write_text("der Hund\tthe dog\nder Baum\tthe tree\n\tempty\n", encoding="utf-8")
    done = knnmt("stats", tmp_path / "x.tsv", "--langs", "de-en", "--json")
    assert json.loads(done.stdout) == {
        "pairs": 3, "longest": 2, "mean_length": pytest.approx(4 / 3), "tokens": 4, "types": 3, "highest_frequency": 2,
        "mean_frequency": pytest.approx(4 / 3),
    }  # fmt: skip
    cleaned = knnmt("stats", tmp_path / "x.tsv", "--langs", "de-en", "--clean")
    assert "kept 2 of 3 segments; dropped 1 empty" in cleaned.stdout
    by_model = json.loads(knnmt("stats", tmp_path / "x.tsv", "-l", "de-en", "-m", tiny, "--json").stdout)
    assert by_model["tokens"] == 4  # each word is a piece, and `</s>` is not counted
    refused(knnmt("stats", tmp_path / "none.tmx", "--langs", "de-en"), 2, "none.tmx")
    (tmp_path / "bad.tmx").write_text("<tmx><body><tu>", encoding="utf-8")
    refused(knnmt("stats", tmp_path / "bad.tmx", "--langs", "de-en"), 1, "bad.tmx")
    (tmp_path / "y.de").write_text("eins\nzwei\n", encoding="utf-8")
    (tmp_path / "y.en").write_text("one\n", encoding="utf-8")
    refused(knnmt("stats", tmp_path / "y.de", "--langs", "de-en"), 1, "y.de", "y.en")


def test_align(tmp_path: Path, tiny: Path) -> None:
    pairs = [("der Hund", "the dog"), ("die Katze", "the cat"), ("das Haus", "the house"), ("ein Baum", "a tree")] * 30
    (tmp_path / "x.tsv").write_text("".join(f"{s}\t{t}\n" for s, t in pairs), encoding="utf-8")
    common = (tmp_path / "x.tsv", "--langs", "de-en", "--model", tiny)
    done = knnmt("align", *common, "-o", tmp_path / "a", "--save", tmp_path / "parameters", "--json")
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report["segments"] == 120
    assert 0 < report["aligned_target_tokens"] <= report["target_tokens"]
    again = knnmt("align", *common, "-o", tmp_path / "b", "--load", tmp_path / "parameters")
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "a").read_text() == (tmp_path / "b").read_text()
    assert len((tmp_path / "a").read_text().splitlines()) == 120
    both = ("--load", tmp_path / "parameters", "--save", tmp_path / "p")
    refused(knnmt("align", *common, "-o", tmp_path / "c", *both), 2, "exclude each other")
    (tmp_path / "empty.tsv").write_text("")
    refused(
        knnmt("align", tmp_path / "empty.tsv", "-l", "de-en", "-m", tiny, "-o", tmp_path / "c"), 2, "nothing to align"
    )
    (tmp_path / "broken").write_bytes(b"nonsense")
    refused(knnmt("align", *common, "-o", tmp_path / "c", "--load", tmp_path / "broken"), 1, "broken")
    refused(knnmt("align", *common, "-o", tmp_path / "no" / "c"), 2, "no folder")


def test_shortlist(tmp_path: Path, tiny: Path, corpus: Path) -> None:
    path, text = tmp_path / "lists", tmp_path / "x.de"
    common = (corpus, "--langs", "de-en", "--model", tiny)
    report = json.loads(fine(knnmt("shortlist", *common, "-o", path, "--per-type", "2", "--frequent", "1", "--json")))
    assert report["segments"] == 198
    assert report["held_out"] == 2
    assert report["coverage"] > 0.9  # the corpus is translated word by word
    assert 0 < report["pairs"] <= 2 * report["source_types"]
    text.write_text("der Hund schläft\n\ndie Katze sieht das Haus\n", encoding="utf-8")
    translate = ("translate", text, "-l", "de-en", "-m", tiny, "--beam", "2", "--json")
    short, whole = (fine(knnmt(*translate, *given)) for given in (("--shortlist", path), ()))
    assert len(short.splitlines()) == len(whole.splitlines()) == 3
    assert short != whole  # lists give fewer tokens more probability
    refused(knnmt(*translate, "--shortlist", text), 1, "corrupt shortlist file")
    refused(knnmt("shortlist", *common, "-o", tmp_path / "no" / "lists"), 2, "no folder")
