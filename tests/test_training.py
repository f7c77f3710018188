"""The script that trains the embedded model: its noise, and one run from text to a model that loads."""

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from knnmt import Translator

from .forked import Forked

TRAIN = Path(__file__).parent.parent / "models" / "train"


@pytest.fixture(scope="module")
def noise() -> ModuleType:
    spec = importlib.util.spec_from_file_location("noise", TRAIN / "noise.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_quotes_and_spaces_are_made_plain(noise: ModuleType) -> None:
    assert noise.normalise("Er sagte:\u00a0„Nein“ –\u200b  jetzt") == 'Er sagte: "Nein" – jetzt'
    assert noise.normalise("the ‘new’ rule of Europe’s") == 'the "new" rule of Europe\'s'


def test_what_is_held_stands_on_both_sides(noise: ModuleType) -> None:
    source, target = "Am 17. Mai kam Anna nach Berlin.", "On 17 May Anna came to Berlin."
    for seed in range(200):
        left, right = noise.hold(source, target, random.Random(seed))
        assert (left, right) != (source, target)
        new = set(left.split()) - set(source.split())
        assert new & set(right.split())


def test_a_fragment_is_a_clause_of_both_sides(noise: ModuleType) -> None:
    pair = ("Erstens das Haus, zweitens der Garten", "First the house, second the garden")
    found = {noise.fragment(*pair, random.Random(seed)) for seed in range(50)}
    assert ("Zweitens der Garten", "Second the garden") in found
    assert all(("Haus" in s) == ("house" in t) for s, t in found)
    assert noise.fragment("a, b, c", "x y z", random.Random(1)) == ("a, b, c", "x y z")


def test_most_pairs_stay_as_they_are(noise: ModuleType) -> None:
    pair = ('Das "neue" Haus steht in Berlin.', "The new house is in Berlin.")
    rng = random.Random(1)
    kept = sum(noise.perturb(*pair, rng) == pair for _ in range(2000))
    assert 0.75 < kept / 2000 < 0.92


def test_one_run_makes_a_model_that_loads_and_is_not_run_twice(tmp_path: Path) -> None:
    rng = random.Random(1)
    words = {"der Hund": "the dog", "die Katze": "the cat", "läuft": "runs", "schläft": "sleeps", "heute": "today"}
    syllables = "ka", "lo", "mir", "stu", "ten", "ball", "graf"  # words enough for any way to find pieces
    words |= {f"{a}{b}": f"{b}{a}" for a in syllables for b in syllables}
    lines: set[str] = set()
    while len(lines) < 2600:
        chosen = rng.choices(list(words), k=rng.randint(2, 9))
        lines.add(f"{' '.join(chosen)} {len(lines)}.\t{' '.join(words[w] for w in chosen)} {len(lines)}.")
    (tmp_path / "text.tsv").write_text("\n".join(sorted(lines)) + "\n", encoding="utf-8")
    size = "--vocabulary 410 --width 16 --ffn 32 --heads 2 --encoder-layers 1 --decoder-layers 1 --versions 1"
    rest = f"--batch-tokens 300 --minutes 0.02 --no-compile --work {tmp_path}/work --out {tmp_path}/model"
    options = ["--data", str(tmp_path / "text.tsv"), *size.split(), *rest.split()]
    script = TRAIN / "train.py"

    def run() -> str:
        if not hasattr(os, "fork"):
            command = [sys.executable, str(script), *options]
            return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True).stdout
        process = Forked(script.read_text("utf-8"), script, *options, path=[str(TRAIN)])
        told, complaints = process.communicate(timeout=240)
        assert process.returncode == 0, complaints
        return told

    assert "pairs after cleaning" in run()
    assert Translator(tmp_path / "model").translate(["der Hund läuft."])[0].tokens
    again = run()
    assert "snapshots averaged" in again
    assert "trained" not in again
