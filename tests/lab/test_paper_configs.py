"""The configs of the paper's own setting: the English-French one runs from its texts to its scores.

With a tiny model and made-up texts, since neither its model nor WMT'14 is to be had here.
"""

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt.lab.reproduce import Config, reproduce
from knnmt.tune import grid

CONFIGS = Path(__file__).parents[2] / "configs"
WORDS = {
    "the house": "la maison", "the old garden": "le vieux jardin", "my brother": "mon frère", "the river": "la rivière",
    "our teacher": "notre professeur", "the small village": "le petit village", "every child": "chaque enfant",
}  # fmt: skip
VERBS = {
    "was beautiful this morning": "était belle ce matin", "has waited for a long time": "a attendu longtemps",
    "is behind the mountain": "est derrière la montagne", "will always be there": "sera toujours là",
    "cannot be seen from here": "ne peut pas être vu d'ici",
}  # fmt: skip


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """English and French that are told apart from other languages."""
    folder, rng = tmp_path_factory.mktemp("texts"), random.Random(3)
    every = [(f"{one} {does} .", f"{WORDS[one]} {VERBS[does]} .") for one in WORDS for does in VERBS]
    rng.shuffle(every)
    (folder / "wmt14").mkdir()
    for part, some in (("train", every[:27]), ("dev", every[27:31]), ("test", every[31:])):
        for side, language in enumerate(("en", "fr")):
            lines = "".join(pair[side] + "\n" for pair in some)
            (folder / "wmt14" / f"{part}.{language}").write_text(lines, encoding="utf-8")
    return folder


def test_the_english_french_setting_runs(
    texts: Path, model_folder: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("faiss")
    monkeypatch.setattr(grid, "TEMPERATURES", (1 / 40,))
    monkeypatch.setattr(grid, "CONSTANT_WEIGHTS", (0.5,))
    monkeypatch.setattr(grid, "K", (1, 8))
    asked = Config.load(CONFIGS / "paper-en-fr.toml")
    assert asked.languages == "en-fr"
    plan = asked.tune.model_copy(update={"decoded": 1, "segments": 3})
    model = tmp_path / "opus-mt-en-fr"
    shutil.copytree(model_folder("marian"), model)
    told = json.loads((model / "tokenizer_config.json").read_text(encoding="utf-8"))
    (model / "tokenizer_config.json").write_text(json.dumps(told | {"source_lang": "en", "target_lang": "fr"}))
    asked = asked.model_copy(update={"model": str(model), "tune": plan, "resamples": 5})
    found = reproduce(asked, texts, tmp_path / "out", device="cpu", jobs=1)
    systems = {name for domain in found.domains for name in domain.systems}
    assert systems == {"base", *(run.name for run in asked.systems)}
    assert all(domain.built.kept > 20 for domain in found.domains)  # what is left when the texts are cleaned
    for domain in found.domains:
        assert all(one.translated.segments == 4 for one in domain.systems.values())
