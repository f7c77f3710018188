"""translate, explain."""

import json
from pathlib import Path

from knnmt.corpus import Languages, read
from knnmt.datastore import Datastore
from knnmt.retrieval.gate import Purpose
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.settings import RetrievalSettings

from ..retrieval.examples import random_gate
from .process import begun, fine, knnmt, refused


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
    writer = begun("translate", "-m", tiny, "--beam", "1")
    writer.stdout.close()
    _, stderr = writer.communicate("der Hund\n" * 3000, timeout=120)
    assert stderr == ""
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
    refused(knnmt("translate", "-m", tiny, kept, "-o", kept), 2, "is an input")
    refused(knnmt("translate", "-m", tmp_path / "none", "-o", kept, text="a\n"), 2, "no model at")
    refused(knnmt("translate", "-m", tiny, "-o", kept, text=b"\xff\n"), 1, "line 1")
    assert kept.read_text(encoding="utf-8") == "der Hund\n"
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


# ------------------------------------------------------------------------------------------------------ with a store

GREEDY = ("--beam", "1", "--max-length", "12")
LINES = "der Hund schläft im Garten .\n\neine Katze sieht das Haus .\nein Baum .\n"


def test_a_store_changes_translations_by_its_weight(tiny: Path, store: Path, tmp_path: Path) -> None:
    base = fine(knnmt("translate", "-m", tiny, *GREEDY, text=LINES))
    with_store = ("translate", "-m", tiny, "-s", store, *GREEDY, "--no-exact")
    assert fine(knnmt(*with_store, "--lambda", "0", text=LINES)) == base
    assert fine(knnmt(*with_store, "--system", "base", text=LINES)) == base
    kept = fine(knnmt(*with_store, "--lambda", "1", "--adapt", "constant", "-k", "4", text=LINES))
    assert kept != base
    known = {segment.target for segment in read(_corpus_of(store), Languages("de", "en"))}
    words = {word for target in known for word in target.split()}
    assert {word for line in kept.splitlines() for word in line.split()} <= words  # it can say nothing else

    settings = tmp_path / "settings.json"
    settings.write_text('{"retrieval": {"system": "knn", "k": 4, "lambda": 1, "adapt": "constant"}, "bleu": 12.5}')
    given = fine(knnmt(*with_store, "--settings", settings, text=LINES))
    options = ("--system", "knn", "-k", "4", "--lambda", "1", "--adapt", "constant")
    assert given == fine(knnmt(*with_store, *options, text=LINES))
    assert fine(knnmt(*with_store, "--settings", settings, "--lambda", "0", text=LINES)) == base


def test_a_gate_comes_with_its_settings_and_gives_way_to_a_weight(tiny: Path, store: Path, tmp_path: Path) -> None:
    opened, path = Datastore.open(store), tmp_path / "knn.json"
    gate = random_gate(Purpose("knn", opened.manifest.key, opened.manifest.metric)).leaning(3.0)
    chosen = RetrievalSettings(system="knn", k=4, weight=0.9, adapt="learned")
    Tuned(chosen, gate).save(path)
    by_gate = ("translate", "-m", tiny, "-s", store, *GREEDY, "--no-exact", "--settings", path)
    base = fine(knnmt("translate", "-m", tiny, *GREEDY, text=LINES))
    assert fine(knnmt(*by_gate, text=LINES)) != base
    assert fine(knnmt(*by_gate, "--lambda", "0", text=LINES)) == base
    alone = path.rename(tmp_path / "alone.json")  # without its gate
    refused(knnmt(*by_gate[:5], "--settings", alone, text=LINES), 2, "alone.gate", "knnmt tune")
    faster = RetrievalSettings(system="faster", adapt="learned")
    Tuned(faster, gate).save(tmp_path / "faster.json")
    other = ("--settings", tmp_path / "faster.json")
    refused(knnmt(*by_gate[:5], *other, text=LINES), 1, "the gate was trained for knn", "not for faster")


def _corpus_of(store: Path) -> Path:
    """The file that a store was built from."""
    return Path(Datastore.open(store).segment(0).origin.rpartition(":")[0])


def test_what_the_store_has_of_the_very_lines_can_be_left_out(tiny: Path, store: Path, corpus: Path) -> None:
    segments = list(read(corpus, Languages("de", "en")))[:20]
    lines = "".join(f"{segment.source}\n" for segment in segments)
    options = ("-m", tiny, "-s", store, *GREEDY, "--system", "knn", "--lambda", "1", "--adapt", "constant", "-k", "1")
    remembered = fine(knnmt("translate", *options, text=lines)).splitlines()
    done = knnmt("translate", *options, "--leave-out-own", text=lines)
    assert done.returncode == 0, done.stderr
    assert done.stderr.startswith("note: the store contains 20 word for word and 0 nearly of 20 lines: ignoring ")
    assert len(done.stdout.splitlines()) == len(remembered) == 20
    assert done.stdout.splitlines() != remembered
    refused(knnmt("translate", "-m", tiny, "--leave-out-own", text=lines), 2, "--store")


def test_wrong_use_of_a_store(tiny: Path, store: Path, tmp_path: Path) -> None:
    refused(knnmt("translate", "-m", tiny, "-s", tmp_path / "none", text="a\n"), 1, "no datastore")
    refused(knnmt("translate", "-m", tiny, "-s", store, "--system", "quick", text="a\n"), 2, "quick", "faster-exact")
    refused(knnmt("translate", "-m", tiny, "--system", "fast", text="a\n"), 2, "needs a store", "knnmt build")
    refused(knnmt("translate", "-s", store, text="a\n"), 1, "made with another model")
    refused(knnmt("translate", "-m", tiny, "-s", store, "-k", "0", text="a\n"), 2, "-k", "greater")
    refused(knnmt("translate", "-m", tiny, "-s", store, "--lambda", "2", text="a\n"), 2, "--lambda")
    refused(knnmt("translate", "-m", tiny, "-s", store, "--settings", tmp_path / "s", text="a\n"), 2, "knnmt tune")
    (tmp_path / "s").write_text("{}")
    refused(knnmt("translate", "-m", tiny, "-s", store, "--settings", tmp_path / "s", text="a\n"), 1, "knnmt tune")


def test_explain(tiny: Path, store: Path, tmp_path: Path) -> None:
    options = ("-m", tiny, "-s", store, "--beam", "1")
    content = json.loads(fine(knnmt("explain", "der Hund schläft .", *options, "--json")))
    assert content["tokens"]
    for token in content["tokens"]:
        mixed = token["weight"] * token["p_knn"] + (1 - token["weight"]) * token["p_mt"]
        assert abs(mixed - token["p"]) < 1e-5
        assert all(each["before"] + each["token"] + each["after"] for each in token["neighbours"])
    shown = fine(knnmt("explain", "der Hund schläft .", *options))
    assert "p_kNN" in shown
    assert shown.rstrip().splitlines()[-1] == content["text"]
    refused(knnmt("explain", "der Hund", "-m", tiny, "-s", tmp_path / "none"), 1, "no datastore", "knnmt build")
    refused(knnmt("explain", "der Hund", *options, "--system", "base"), 2, "nothing to explain")
