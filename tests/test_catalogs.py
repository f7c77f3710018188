"""The script that collects user-interface strings to train on: from made-up packages, with nothing to download."""

import io
import json
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

TRAIN = Path(__file__).parent.parent / "models" / "train"
PO = """
msgid ""
msgstr "Content-Type: text/plain; charset=UTF-8"

msgid "Save"
msgstr "Speichern"

msgid "%(n)s page"
msgid_plural "%(n)s pages"
msgstr[0] "%(n)s Seite"
msgstr[1] "%(n)s Seiten"

msgid "Delete %(name)s"
msgstr "%(wrong)s löschen"

#, fuzzy
msgid "Open"
msgstr "Zu"

msgid "The file could not be read."
msgstr "Die Datei konnte nicht gelesen werden."

msgid "Please choose another name for it."
msgstr "Veuillez choisir un autre nom pour ce fichier, merci."
"""
SCRIPT = """
// "kommentar": "comment"
export const {tag}Texts = {{
  menu: {{ 'copy': '{copy}', "cut": "{cut}" }}, /* {{ */
  copy: `{again}`,
  shown: (n) => n > 1 ? '{many}' : '{one}',
}};
Msg["PASTE"] = "{paste}";
"""
GERMAN = {"copy": "Kopieren", "cut": "Ausschneiden", "again": "Noch\\u0020mal kopieren", "paste": "Einf\\xfcgen"}
ENGLISH = {"copy": "Copy", "cut": "Cut", "again": "Copy again", "paste": "Paste"}


@pytest.fixture(scope="module")
def lines(tmp_path_factory: pytest.TempPathFactory) -> tuple[set[tuple[str, ...]], str]:
    """What the script makes of a wheel and an npm package, and what it prints."""
    folder = tmp_path_factory.mktemp("catalogs")
    with zipfile.ZipFile(folder / "My_App-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("my_app/locale/de/LC_MESSAGES/django.po", PO)
        wheel.writestr("my_app/translations/de.json", json.dumps({"de": {"a": {"b": "Abbrechen"}, "c": "Nur hier"}}))
        wheel.writestr("my_app/translations/en.json", json.dumps({"en": {"a": {"b": "Cancel"}}}))
        wheel.writestr("my_app/static/tinymce/de.json", json.dumps({"x": "Fett"}))
        wheel.writestr("my_app/static/tinymce/en.json", json.dumps({"x": "Bold"}))
    files = {
        "package/lang/de-DE.js": SCRIPT.format(tag="de", many="Mehrere", one="Eins", **GERMAN),
        "package/lang/en-US.js": SCRIPT.format(tag="en", many="Many", one="One", **ENGLISH),
        "package/i18n/messages_de.properties": "# !\nerror.text = Fehler\\u003a \\\n  {0}\nkey=a_b\nsame=Speichern\n",
        "package/i18n/messages.properties": "error.text=Error: {0}\nkey=c_d\nsame=Save\n",
    }
    with tarfile.open(folder / "me-lib-2.1.tgz", "w:gz") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    rows = ["kind name version licence holder", "pypi my-app 1.0 MIT Me", "npm @me/lib 2.1 MIT Me"]
    (folder / "packages.tsv").write_text("\n".join(row.replace(" ", "\t") for row in rows) + "\n")
    (folder / "test.en").write_text("CUT!\nThe file could not be read\n")
    (folder / "demo.tsv").write_text("Kopieren\tCopy\nNoch mal kopieren.\tCopy again.\n")
    command = [sys.executable, str(TRAIN / "catalogs.py"), "--packages", "packages.tsv", "--downloads", "."]
    command += ["--out", "out.tsv", "--held-out", "test.en", "--held-out-long", "demo.tsv"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    written = (folder / "out.tsv").read_text(encoding="utf-8").splitlines()
    assert len(written) == len(set(written))
    return {tuple(line.split("\t")) for line in written}, done.stdout


def test_pairs_are_found_in_all_formats(lines: tuple[set[tuple[str, ...]], str]) -> None:
    found, _ = lines
    assert {each for each in found if each[2] == "pypi:my-app"} == {
        ("Speichern", "Save", "pypi:my-app"),
        ("%(n)s Seite", "%(n)s page", "pypi:my-app"),
        ("%(n)s Seiten", "%(n)s pages", "pypi:my-app"),
        ("Abbrechen", "Cancel", "pypi:my-app"),
    }
    assert {each for each in found if each[2] == "npm:@me/lib"} == {
        ("Kopieren", "Copy", "npm:@me/lib"),  # a label, which --held-out-long keeps
        ("Einfügen", "Paste", "npm:@me/lib"),
        ("Fehler: {0}", "Error: {0}", "npm:@me/lib"),
    }


def test_what_is_dropped_is_counted(lines: tuple[set[tuple[str, ...]], str]) -> None:
    _, printed = lines
    for reason, count in {
        "placeholders": 1, "held out": 2, "held out, long": 1, "language": 1, "no text": 1, "duplicate": 1,
    }.items():  # fmt: skip
        assert f"'{reason}': {count}" in printed, (reason, printed)


def test_a_package_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    (tmp_path / "packages.tsv").write_text("kind\tname\tversion\tlicence\tholder\npypi\tno-such\t0\tMIT\tNobody\n")
    command: list[str | Path] = [sys.executable, TRAIN / "catalogs.py", "--packages", tmp_path / "packages.tsv"]
    command += ["--downloads", tmp_path, "--out", tmp_path / "out.tsv"]
    offline = os.environ | {"PIP_NO_INDEX": "1"}
    done = subprocess.run(command, env=offline, capture_output=True, text=True, timeout=120)
    assert "cannot download pypi:no-such 0" in done.stdout, done.stderr


def test_the_list_is_whole() -> None:
    rows = [line.split("\t") for line in (TRAIN / "packages.tsv").read_text(encoding="utf-8").splitlines()]
    assert rows[0] == ["kind", "name", "version", "licence", "holder"]
    assert all(len(row) == 5 and all(row) and row[0] in ("pypi", "npm", "deb") for row in rows[1:])
    described = (TRAIN / "CATALOGS.md").read_text(encoding="utf-8")
    assert all(row[1].partition("+")[0] in described for row in rows[1:])
