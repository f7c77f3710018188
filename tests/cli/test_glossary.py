"""`knnmt glossary check`, and the option --glossary."""

import json
from pathlib import Path

from typer.testing import CliRunner

from knnmt.cli.app import app


def test_a_sound_glossary_passes(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text("Datei\tfile\nOrdner\tfolder\n", "utf-8")
    found = CliRunner().invoke(app, ["glossary", "check", str(path), "--langs", "de-en"])
    assert found.exit_code == 0, found.output
    assert "2 terms, 0 problems" in found.output


def test_problems_are_told_with_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "g.tsv"
    path.write_text("Datei\tfile\nDatei\tdocument\n\tfolder\n", "utf-8")
    found = CliRunner().invoke(app, ["glossary", "check", str(path), "--json"])
    assert found.exit_code == 1
    told = json.loads(found.stdout)
    assert told["terms"] == 2
    assert told["problems"] == [
        f"{path}:3: the source term is empty; fill it in or remove the line",
        f"{path}:2: «Datei» is a duplicate of line 1, which has «file»",
    ]


def test_lines_and_documents_are_translated_with_their_terms(tmp_path: Path) -> None:
    glossary, text, document = tmp_path / "g.tsv", tmp_path / "a.txt", tmp_path / "a.json"
    glossary.write_text("Haus\tmansion\n", "utf-8")
    text.write_text("Das Haus ist groß.\n", "utf-8")
    document.write_text('{"a": "Das Haus ist groß."}', "utf-8")
    asked = ["translate", "--glossary", str(glossary)]
    lines = CliRunner().invoke(app, [*asked, str(text), "--json"])
    assert lines.exit_code == 0, lines.output
    (found,) = json.loads(lines.stdout)["translations"]
    assert found["text"] == "The mansion is big."
    assert found["terms"] == [{"source": "Haus", "target": "mansion", "used": True, "reason": ""}]
    written = tmp_path / "b.json"
    assert CliRunner().invoke(app, [*asked, str(document), "-o", str(written)]).exit_code == 0
    assert "mansion" in written.read_text("utf-8")
