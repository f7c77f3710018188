"""`knnmt translate` with whole documents, with a tiny model."""

import json
from pathlib import Path

from .process import fine, knnmt, refused

GREEDY = ("--beam", "1", "--max-length", "8")
PO = b"""msgid ""
msgstr ""
"Language: \\n"
"Content-Type: text/plain; charset=UTF-8\\n"

msgid "der Hund"
msgstr ""

msgid "das Haus"
msgstr "the house"
"""


def test_a_catalog(tiny: Path, tmp_path: Path) -> None:
    source, out = tmp_path / "app.po", tmp_path / "en.po"
    source.write_bytes(PO)
    done = knnmt("translate", source, "-o", out, "-m", tiny, *GREEDY)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines() == [
        f"{source}:6: untranslated: the translation is empty",  # all that this model has to say
        "1 file: 1 unit translated (2 words), 0 exact matches, 1 translated before, 1 problem",
    ]
    written = out.read_bytes()
    assert b'#, fuzzy\nmsgid "der Hund"\nmsgstr "' in written
    assert b'"Language: en\\n"' in written
    assert written.endswith(b'msgid "das Haus"\nmsgstr "the house"\n')
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.po", "en.po"]
    through = knnmt("translate", "--format", "po", "-m", tiny, *GREEDY, text=PO)
    assert through.stdout.encode() == written
    everything = knnmt("translate", source, "-o", out, "-m", tiny, "--all", "--json", *GREEDY)
    assert json.loads(fine(everything))["units"] == 2


def test_an_exact_match_is_taken_as_it_is(tiny: Path, store: Path, corpus: Path, tmp_path: Path) -> None:
    known = next(line.split("\t") for line in corpus.read_text("utf-8").splitlines())
    source = tmp_path / "app.properties"
    source.write_text(f"a={known[0]}\nb=ein Haus\n", encoding="utf-8")
    done = knnmt("translate", source, "-m", tiny, "-s", store, *GREEDY)
    assert "1 exact match" in done.stderr
    assert done.stdout.splitlines()[0] == f"a={known[1]}"


def test_a_folder(tiny: Path, tmp_path: Path) -> None:
    folder, out = tmp_path / "locale", tmp_path / "out"
    (folder / "de").mkdir(parents=True)
    (folder / "de" / "app.pot").write_bytes(PO)
    (folder / "page.html").write_bytes(b"<p>der <b>Hund</b></p>\r\n")
    (folder / "read.txt").write_bytes(b"der Hund\n\n  die Katze\n")
    (folder / "x.png").write_bytes(b"\x89PNG")
    (folder / ".hidden.po").write_bytes(PO)
    done = knnmt("translate", folder, "-o", out, "-m", tiny, *GREEDY)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[0] == "note: 1 file of other formats ignored"
    assert sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()) == [
        "de/app.po", "page.html", "read.txt",
    ]  # fmt: skip
    assert (out / "read.txt").read_bytes().count(b"\n") == 3
    assert (out / "page.html").read_bytes().endswith(b"</p>\r\n")
    again = knnmt("translate", folder / "page.html", folder / "de" / "app.pot", "-o", out, "-m", tiny, *GREEDY)
    assert sorted(path.name for path in out.iterdir()) == ["app.po", "de", "page.html", "read.txt"]
    assert "2 files: " in again.stderr


def test_wrong_use(tiny: Path, tmp_path: Path) -> None:
    source, bad = tmp_path / "a.po", tmp_path / "b.po"
    source.write_bytes(PO)
    bad.write_bytes(PO + b'msgid "a')
    use = ("translate", "-m", tiny)
    refused(knnmt(*use, source, "-o", source), 2, "is an input")
    refused(knnmt(*use, source, tmp_path, "-o", tmp_path), 2, "is an input")
    refused(knnmt(*use, source, bad), 2, "folder to write to (-o)")
    refused(knnmt(*use, source, bad, "-o", tmp_path / "out"), 1, f"{bad}:11: a string that does not end")
    refused(knnmt(*use, source, "--format", "word"), 2, "no format 'word'", "xliff")
    refused(knnmt(*use, source, "--n-best", "2"), 2, "--n-best")
    refused(knnmt(*use, source, "--json"), 2, "-o")
    refused(knnmt(*use, "--all", text="a\n"), 2, "--all")
    refused(knnmt(*use, tmp_path / "none.po", "-o", tmp_path / "x.po"), 2, "none.po", "No such file")
    refused(knnmt(*use, source, tmp_path / "none.po", "-o", tmp_path / "out"), 2, "none.po", "No such file")
    assert source.read_bytes() == PO
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.po", "b.po"]


def test_a_text_by_its_lines_if_that_is_asked_for(tiny: Path, tmp_path: Path) -> None:
    source = tmp_path / "a.md"
    source.write_text("# der Hund\n", encoding="utf-8")
    lines = fine(knnmt("translate", source, "--format", "text", "-m", tiny, *GREEDY))
    assert lines == fine(knnmt("translate", "-m", tiny, *GREEDY, text="# der Hund\n"))
