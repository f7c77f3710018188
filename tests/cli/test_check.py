"""`knnmt check`: findings, exit codes, reports; and what `knnmt translate` tells of its own work."""

import json
from pathlib import Path

from .process import fine, knnmt, refused

PO = 'msgid "Save %s"\nmsgstr "%s sichern"\n\nmsgid "Stop now"\nmsgstr "Halt (jetzt"\n'


def test_check(tmp_path: Path) -> None:
    path, good = tmp_path / "a.po", tmp_path / "b.po"
    path.write_text(PO, encoding="utf-8")
    good.write_text(PO.replace("(", "").replace("now", "here"), encoding="utf-8")
    done = knnmt("check", path, good)
    assert (done.returncode, done.stdout) == (1, f"{path}:4: bracket: ( has no partner\n")
    assert done.stderr == "4 units checked, 1 finding\n"
    assert fine(knnmt("check", good), "2 units checked, 0 findings\n") == ""
    assert knnmt("check", path, "--ignore", "bracket").returncode == 0
    (found,) = json.loads(knnmt("check", path, "--json").stdout)
    assert (found["line"], found["kind"], found["source"], found["target"]) == (4, "bracket", "Stop now", "Halt (jetzt")
    assert json.loads(knnmt("check", path, "--sarif").stdout)["version"] == "2.1.0"
    assert "<testsuites>" in knnmt("check", good, "--junit").stdout


def test_terms_of_a_glossary(tmp_path: Path) -> None:
    path, terms = tmp_path / "a.po", tmp_path / "terms.tsv"
    path.write_text('msgid "Save file"\nmsgstr "Akte sichern"\n', encoding="utf-8")
    terms.write_text("file\tDatei\n", encoding="utf-8")
    done = knnmt("check", path, "--glossary", terms, "-l", "en-de")
    assert done.returncode == 1
    assert f"{path}:1: term: " in done.stdout


def test_wrong_use(tmp_path: Path) -> None:
    path, table = tmp_path / "a.json", tmp_path / "a.po"
    path.write_text('{"a": "b c"}', encoding="utf-8")
    table.write_text(PO, encoding="utf-8")
    refused(knnmt("check", path), 2, "a.json holds one language", "two files")
    refused(knnmt("check", path, table), 2, "a.json holds one language")
    refused(knnmt("check", table, "--ignore", "none"), 2, "no check 'none'", "placeholder")
    refused(knnmt("check", table, "--json", "--junit"), 2, "choose one")
    refused(knnmt("check", tmp_path / "none.po"), 2, "No such file")


def test_translate_tells_what_it_could_not_do(tiny: Path, tmp_path: Path) -> None:
    """A match of the store that lacks a placeholder, in lines and in documents."""
    memory = tmp_path / "memory"
    source = tmp_path / "train.tsv"
    source.write_text("der %s Hund\tthe dog\n" + "das Haus ist groß\tthe house is big\n" * 5, encoding="utf-8")
    fine(knnmt("build", source, "-l", "de-en", "-m", tiny, "-o", memory, "--no-clean", "--cluster-size", "16"))
    lines = knnmt("translate", "-m", tiny, "-s", memory, "--beam", "1", text="das Haus ist groß\nder %s Hund\n")
    assert lines.stdout == "the house is big\nthe dog\n"
    assert lines.stderr == "standard input:2: placeholder: %s is missing\n"
    document = tmp_path / "a.properties"
    document.write_text("a=der %s Hund\n", encoding="utf-8")
    done = knnmt("translate", document, "-m", tiny, "-s", memory, "--beam", "1")
    assert done.stderr.splitlines()[0] == f"{document}:1: placeholder: %s is missing"


def test_analyze(store: Path, corpus: Path, tmp_path: Path) -> None:
    known = corpus.read_text("utf-8").split("\t")[0]
    path = tmp_path / "a.txt"
    path.write_text(f"{known}\n\nVöllig neuer Text\nVöllig neuer Text\n", encoding="utf-8")
    found = json.loads(fine(knnmt("analyze", path, "--store", store, "--json")))
    segments = {name: band["segments"] for name, band in found["bands"].items() if band["segments"]}
    assert segments == {"exact": 1, "repetitions": 1, "new": 1}
    assert found["total"] == {"segments": 3, "words": 6 + len(known.split())}
    assert "repetitions" in fine(knnmt("analyze", path))
    refused(knnmt("analyze", tmp_path / "none"), 2, "No such file")


def test_a_document_says_how_well_the_memory_matches(tiny: Path, store: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    path.write_text(
        '<xliff version="1.2"><file source-language="de" target-language="en"><body><trans-unit id="1">'
        "<source>Völlig neuer Text</source></trans-unit></body></file></xliff>",
        encoding="utf-8",
    )
    done = knnmt("translate", path, "-m", tiny, "-s", store, "--beam", "1", "--max-length", "8")
    assert "; no match in the translation memory</note>" in done.stdout
