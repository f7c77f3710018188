"""add, remove, compact and export, as one types them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.cli.app import app
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import load

from ..build.examples import parallel_text


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> str:
    return str(model_folder("marian"))


@pytest.fixture(scope="module")
def sealed(model: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sealed")
    corpus = parallel_text(folder / "corpus.tsv", 20)
    loaded = load(model, langs="de-en", device="cpu")
    build([corpus], loaded, folder / "store", "de-en", BuildSettings(clean=None, cluster_size=4))
    return folder / "store"


@pytest.fixture
def store(sealed: Path, tmp_path: Path) -> Path:
    shutil.copytree(sealed, tmp_path / "store")
    return tmp_path / "store"


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_a_segment_is_taught_changed_removed_and_folded_in(store: Path, model: str) -> None:
    lesson = ("--source", "der Hund", "--target", "the dog", "--id", "one")
    assert run("add", store, *lesson, "--model", model) == (0, f"{store}: added 1 segment; 21 in all\n")
    code, out = run("add", store, *lesson[:3], "a dog", "--id", "one", "--model", model, "--json")
    assert (code, json.loads(out)) == (
        0,
        {"ids": ["one"], "new": 0, "replaced": 1, "unchanged": 0, "faults": [], "segments": 21},
    )
    code, out = run("export", store, "--taught")
    assert json.loads(out)["target"] == "a dog"
    code, out = run("compact", store, "--model", model)
    assert "21 segments" in out
    code, out = run("compact", store, "--model", model)
    assert "nothing to do" in out
    assert run("remove", store, "one")[1] == f"{store}: removed 1 segment; 20 left\n"
    assert run("verify", store, "--full")[0] == 0
    assert run("inspect", store)[0] == 0


def test_files_are_taught_and_what_is_unfit_is_named(store: Path, model: str, tmp_path: Path) -> None:
    corpus = tmp_path / "new.tsv"
    corpus.write_text("der Baum\tthe tree\nleer\t\n" + "Hund " * 90 + "\tdog\n" + "das Haus\tthe house\n")
    code, out = run("add", store, corpus, "--model", model)
    assert code == 0
    assert "added 2 segments" in out
    assert f"{corpus}:3" in out
    (tmp_path / "bad.tsv").write_text("x\t\n")
    code, out = run("add", store, tmp_path / "bad.tsv", "--model", model)
    assert (code, "nothing to learn" in out) == (1, True)


@pytest.mark.parametrize("kind", ["tmx", "tsv", "jsonl"])
def test_what_is_exported_can_be_taught_again(store: Path, model: str, tmp_path: Path, kind: str) -> None:
    out = tmp_path / f"all.{kind}"
    assert run("export", store, "--out", out)[0] == 0
    before = [(segment.source, segment.target) for segment in Datastore.open(store).segments()]
    names = [segment.id or "" for segment in Datastore.open(store).segments()]
    assert run("remove", store, *names)[0] == 0
    assert len(Datastore.open(store)) == 0
    code, said = run("add", store, out, "--model", model)
    assert code == 0, said
    assert sorted((segment.source, segment.target) for segment in Datastore.open(store).segments()) == sorted(before)


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["add", "STORE"], "give files of segments, or one segment"),
        (["add", "STORE", "--source", "x"], "give files of segments, or one segment"),
        (["add", "nowhere", "--source", "x", "--target", "y"], "there is no datastore at nowhere"),
        (["remove", "STORE", "nobody"], "not found: nobody"),
        (["export", "STORE", "--out", "x.doc"], "unknown format doc"),
        (["export", "nowhere"], "there is no datastore"),
    ],
)
def test_wrong_use_is_one_line(store: Path, arguments: list[str], wrong: str) -> None:
    code, out = run(*(str(store) if argument == "STORE" else argument for argument in arguments))
    assert code in (1, 2)
    assert wrong in out
    assert "Traceback" not in out


def test_what_is_new_replaced_and_there_already_is_told_apart(store: Path, model: str, tmp_path: Path) -> None:
    corpus = tmp_path / "new.tsv"
    corpus.write_text("der Baum\tthe tree\ndas Haus\tthe house\n")
    assert "added 2 segments; 22 in all" in run("add", store, corpus, "--model", model)[1]
    assert "added 0 segments, 2 already known; 22 in all" in run("add", store, corpus, "--model", model)[1]
    corpus.write_text("der Baum\ta tree\ndas Haus\tthe house\nein Hund\ta dog\n")
    said = run("add", store, corpus, "--model", model)[1]
    assert "added 1 segment, replaced 1, 1 already known; 23 in all" in said
    corpus.write_text("der Baum\tthe tree\n")
    assert "replaced 1; 23 in all" in run("add", store, corpus, "--model", model)[1]


def test_a_damaged_journal_is_repaired_and_says_what_was_lost(store: Path, model: str) -> None:
    assert run("repair", store) == (0, f"{store}: the journal is intact; it has 0 records\n")
    ends = []
    for number, word in enumerate(("Hund", "Katze", "Baum")):
        assert run("add", store, "--source", word, "--target", f"word {number}", "--id", word, "--model", model)[0] == 0
        (journal,) = store.glob("journal-*")
        ends.append(journal.stat().st_size)
    assert run("repair", store)[1] == f"{store}: the journal is intact; it has 3 records\n"
    sound = journal.read_bytes()
    damaged = bytearray(sound + b"the rest of a buffer" * 4)
    damaged[ends[1] - 5] ^= 1  # in the states of the second lesson
    journal.write_bytes(damaged)
    code, said = run("export", store)
    assert (code, f"`knnmt repair {store}`" in said) == (1, True)
    code, said = run("repair", store)
    assert (code, said.splitlines()) == (0, [
        f"{store}: cut {ends[1] - ends[0]:,} bytes at byte {ends[0]:,}",
        "  lost: the lesson Katze: Katze | word 1",
        f"{store}: cut 80 bytes at byte {ends[2]:,}",
        f"{store}: kept 2 records; what was cut is in {journal}.damaged",
    ])  # fmt: skip
    assert Path(f"{journal}.damaged").read_bytes() == bytes(damaged[ends[0] : ends[1]] + damaged[ends[2] :])
    assert [segment.id for segment in Datastore.open(store).recent()] == ["Baum", "Hund"]
    assert run("verify", store, "--full")[0] == 0
    assert "added 1 segment" in run("add", store, "--source", "Katze", "--target", "cat", "--model", model)[1]
    assert run("compact", store, "--model", model)[0] == 0
    assert Path(f"{journal}.damaged").exists()  # nobody but the user deletes it


def test_a_repair_can_be_read_by_programs(store: Path, model: str) -> None:
    run("add", store, "--source", "Hund", "--target", "dog", "--id", "Hund", "--model", model)
    (journal,) = store.glob("journal-*")
    opened, size = Datastore.open(store), journal.stat().st_size
    journal.write_bytes(journal.read_bytes() + b"x" * 40)
    said = run("repair", store, "--json")[1]
    cuts = [{"byte": size, "bytes": 40, "lost": None}]
    assert json.loads(said) == {"records": 1, "cuts": cuts, "saved": f"{journal}.damaged"}
    # who had the store open goes on with what it says now
    Datastore.open(store).remove(["Hund"])
    assert opened.refresh()
    assert len(opened) == 20
    assert opened.recent() == []
