"""The command line as a user meets it: real processes, their output, their exit codes."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

Folder = Callable[[str], Path]


def knnmt(*arguments: str | Path, text: str | bytes = "", **options: str) -> subprocess.CompletedProcess[str]:
    given = text.encode() if isinstance(text, str) else text
    done = subprocess.run(
        [sys.executable, "-c", "from knnmt.cli import main; main()", *map(str, arguments)],
        input=given, capture_output=True, timeout=120, env={**os.environ, "COLUMNS": "200", **options},
    )  # fmt: skip
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def refused(done: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """One line on standard error that names place and remedy; no traceback."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert done.stderr.startswith("knnmt: ")
    for word in words:
        assert word in done.stderr


@pytest.fixture(scope="module")
def tiny(model_folder: Folder) -> Path:
    return model_folder("marian")


def test_help_is_quick_and_imports_nothing_heavy() -> None:
    began = time.perf_counter()
    done = knnmt("--help")
    assert time.perf_counter() - began < 2  # 0.1 s on an idle machine; the README's half second, with a wide margin
    assert done.returncode == 0
    assert "translate" in done.stdout
    heavy = ("torch", "transformers", "rich", "pydantic", "lxml")
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, knnmt.cli; print([m for m in {heavy} if m in sys.modules])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert loaded.stdout.strip() == "[]"


def test_version() -> None:
    assert knnmt("--version").stdout.startswith("knnmt 0.")


def test_translate_from_standard_input(tiny: Path) -> None:
    done = knnmt(
        "translate", "--model", tiny, "--beam", "2", "--max-length", "9", text="der Hund\n\ndie Katze läuft.\n"
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    lines = done.stdout.split("\n")
    assert len(lines) == 4
    assert lines[1] == ""
    assert lines[3] == ""


def test_translate_files_keeps_lines(tiny: Path, tmp_path: Path) -> None:
    source, output = tmp_path / "in.de", tmp_path / "out.en"
    source.write_bytes("\ufeffder Hund\r\nein\u2028Baum\x0c Haus\r\n\r\ndie Katze".encode())  # one line a \n, no other
    done = knnmt("translate", source, "--output", output, "--model", tiny, "--beam", "1", "--max-length", "9")
    assert done.returncode == 0, done.stderr
    assert len(output.read_text(encoding="utf-8").split("\n")) == 5


def test_n_best_and_json(tiny: Path) -> None:
    options = ("--model", tiny, "--beam", "3", "--n-best", "3", "--max-length", "9")
    done = knnmt("translate", *options, text="der Hund\ndas Haus\n")
    rows = [line.split(" ||| ") for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == ["1"] * 3 + ["2"] * 3
    assert all(float(row[2]) < 0 for row in rows)
    done = knnmt("translate", *options, "--json", text="der Hund\ndas Haus\n")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["line"] for line in found] == [1, 2]
    assert [t["text"] for t in found[1]["translations"]] == [row[1] for row in rows[3:]]


def test_a_reader_that_goes_away_is_no_error(tiny: Path) -> None:
    arguments = [
        sys.executable,
        "-c",
        "from knnmt.cli import main; main()",
        "translate",
        "-m",
        str(tiny),
        "--beam",
        "1",
    ]
    writer = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert writer.stdout is not None
    writer.stdout.close()
    _, stderr = writer.communicate(b"der Hund\n" * 3000, timeout=120)
    assert stderr == b""
    assert writer.returncode == 141


def test_wrong_use_and_wrong_input(tiny: Path, tmp_path: Path) -> None:
    refused(knnmt("translate", "-m", tiny, tmp_path / "no.de"), 2, "no.de", "No such file")
    refused(knnmt("translate", "-m", tiny, tmp_path), 2, str(tmp_path))
    refused(knnmt("translate", "-m", tiny, "-o", tmp_path / "x" / "y", text="a\n"), 2, "cannot write")
    refused(knnmt("translate", "-m", tiny, text=b"gut\n\xff\xfe\n"), 1, "standard input, line 2", "UTF-8", "iconv")
    refused(knnmt("translate", "-m", tmp_path / "none", text="a\n"), 2, "no model at", "config.json")
    refused(knnmt("translate", "-m", tiny, "--langs", "de-klingon", text="a\n"), 2, "language pair")
    refused(knnmt("translate", "-m", tiny, "--langs", "fr-en", text="a\n"), 2, "de-en")
    refused(knnmt("translate", "-m", tiny, "--beam", "2", "--n-best", "3", text="a\n"), 2, "3 translations", "2")
    refused(knnmt("translate", "-m", tiny, "--beam", "0", text="a\n"), 2, "--beam")
    refused(
        knnmt("translate", "-m", tiny, "--long", "refuse", text="Haus Hund " * 200),
        1,
        "text 1 has",
        "the model takes 64",
    )


def test_what_was_there_is_kept_until_the_work_is_done(tiny: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    kept.write_text("der Hund\n", encoding="utf-8")
    refused(knnmt("translate", "-m", tiny, kept, "-o", kept), 2, "is the input")
    refused(knnmt("translate", "-m", tmp_path / "none", "-o", kept, text="a\n"), 2, "no model at")
    refused(knnmt("translate", "-m", tiny, "-o", kept, text=b"\xff\n"), 1, "line 1")
    assert kept.read_text(encoding="utf-8") == "der Hund\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_brackets_in_names_are_no_markup(tmp_path: Path) -> None:
    odd = tmp_path / "h[red]y[.en"
    odd.write_text("the dog\n")
    done = knnmt("evaluate", odd, odd)
    assert done.returncode == 0, done.stderr
    assert "h[red]y[.en" in done.stdout


def test_unknown_options_are_wrong_use() -> None:
    assert knnmt("translate", "--bem", "3").returncode == 2
    assert knnmt("transalte").returncode == 2


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
    assert found[str(tmp_path / "a")][0]["value"] == pytest.approx(100)
    (tmp_path / "short").write_text("the dog\n")
    refused(knnmt("evaluate", tmp_path / "ref", tmp_path / "short"), 1, "short has 1 lines", "have 9")
    refused(knnmt("evaluate", tmp_path / "ref", tmp_path / "a", tmp_path / "a"), 2, "named twice")


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
    refused(knnmt("align", *common, "-o", tmp_path / "c", *both), 2, "give one of them")
    (tmp_path / "empty.tsv").write_text("")
    refused(
        knnmt("align", tmp_path / "empty.tsv", "-l", "de-en", "-m", tiny, "-o", tmp_path / "c"), 2, "nothing to align"
    )
    (tmp_path / "broken").write_bytes(b"nonsense")
    refused(knnmt("align", *common, "-o", tmp_path / "c", "--load", tmp_path / "broken"), 1, "broken")
    refused(knnmt("align", *common, "-o", tmp_path / "no" / "c"), 2, "no folder")
