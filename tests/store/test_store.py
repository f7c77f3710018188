"""An opened store: its texts come back as they were, and only the model that made it may use it."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus import Languages, Segment, read
from knnmt.datastore import Datastore
from knnmt.errors import StoreError
from knnmt.model.checkpoint import Model, load

from ..build.examples import parallel_text

AS_THEY_ARE = BuildSettings(clean=None, cluster_size=4)
TEXTS = [
    ("der Hund", "the dog", None),
    ("Größe ß ﬁ e\u0301 \u00a0", "na\u00efve \u201cquotes\u201d", "7"),
    ("中文 العربية 🐕\u200d🦺", "dog \U0001f415", "тест"),
    ("Zeile\u2028Absatz\u2029\x0b\x0c\x85", "line\tand tab", "id with spaces "),
    ("eine\nneue\r\nZeile", "a\nnew\nline\n", "new lines"),
    ("</s> <pad> <unk>", "</s>", "0"),
    (" Rand ", " edge ", ""),
    ("x", "y", "\\n"),
]


@pytest.fixture(scope="module")
def model(model_folder: Callable[[str], Path]) -> Model:
    return load(model_folder("marian"), langs="de-en", device="cpu")


@pytest.fixture(scope="module")
def store(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Datastore:
    """A store of strange texts."""
    folder = tmp_path_factory.mktemp("store")
    lines = [json.dumps({"source": source, "target": target, "id": key}) for source, target, key in TEXTS]
    (folder / "corpus.jsonl").write_text("".join(f"{line}\n" for line in lines))
    return Datastore.build(folder / "corpus.jsonl", langs="de-en", out=folder / "s", model=model, settings=AS_THEY_ARE)


def test_texts_come_back_as_they_were(store: Datastore) -> None:
    corpus = store.path.parent / "corpus.jsonl"
    expected = [
        Segment(source, target, f"{corpus}:{number}", key or None)
        for number, (source, target, key) in enumerate(TEXTS, start=1)
    ]
    named = [replace(segment, id=segment.id or f"#{number}") for number, segment in enumerate(expected)]
    assert list(store.segments()) == named
    assert [store.segment(number) for number in (7, 0, 3)] == [expected[number] for number in (7, 0, 3)]
    assert len(store) == len(TEXTS) == store.manifest.kept
    assert list(read(corpus, Languages("de", "en")))[:6] == expected[:6]  # an id of nothing is none


def test_a_segment_that_is_not_there_is_an_index_error(store: Datastore) -> None:
    for number in (-1, len(TEXTS), 10**9):
        with pytest.raises(IndexError):
            store.segment(number)


def test_entries_are_found_in_their_segments(store: Datastore, model: Model) -> None:
    """Each entry is a target token: its segment, its place there, and the end as the last of each segment."""
    expected = []
    for number, (_, target, _) in enumerate(TEXTS):
        (ids,) = model.tokenizer.encode_target([target])
        expected += [(number, place, token) for place, token in enumerate([*ids, model.special.end])]
    entries = np.arange(store.sizes["entries"])
    segments, places = store.where(entries)
    assert list(zip(segments, places, store.parts[0]["target_ids"], strict=True)) == expected
    shuffled = np.random.default_rng(0).permutation(entries).reshape(1, -1)  # any order, any shape
    segments, places = store.where(shuffled)
    found = zip(segments[0], places[0], store.parts[0]["target_ids"][shuffled[0]], strict=True)
    assert list(found) == [expected[entry] for entry in shuffled[0]]


def test_the_aligner_of_a_store_aligns_new_segments(store: Datastore) -> None:
    from knnmt.align.bitext import Bitext

    links = store.aligner().align(Bitext.from_pairs([([5, 6, 2], [7, 2])]))
    assert {target for _, target in links.segment(0)} == {0, 1}  # every target token


# --------------------------------------------------------------------------------------------------- the same model


def copied(folder: Path, tmp_path: Path) -> Path:
    return shutil.copytree(folder, tmp_path / "copy")


def change_weights(folder: Path, name: str) -> None:
    """Change one number of one tensor, by as little as can be told."""
    path = folder / "model.safetensors"
    weights = load_file(path)
    flat = weights[name].view(-1)
    flat[len(flat) // 2] = torch.nextafter(flat[len(flat) // 2], torch.tensor(torch.inf))
    save_file(weights, path, {"format": "pt"})


def test_a_store_takes_the_model_that_made_it(store: Datastore, model: Model, tmp_path: Path) -> None:
    store.check(model)
    store.check(
        load(copied(Path(model.name), tmp_path), langs="de-en", precision="bfloat16")
    )  # wherever, in any precision


def test_a_store_refuses_other_weights(store: Datastore, model: Model, tmp_path: Path) -> None:
    folder = copied(Path(model.name), tmp_path)
    change_weights(folder, "model.decoder.layers.1.fc1.weight")
    with pytest.raises(StoreError, match="was made with another model") as refused:
        store.check(load(folder, langs="de-en"))
    assert model.name in str(refused.value)


def test_a_store_refuses_another_tokenizer(store: Datastore, model: Model, tmp_path: Path) -> None:
    """The same weights, with two words that have changed places in the vocabulary."""
    folder = copied(Path(model.name), tmp_path)
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    one, other = list(vocabulary)[-2:]
    vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    changed = load(folder, langs="de-en")
    assert changed.fingerprint == model.fingerprint
    with pytest.raises(StoreError, match="was made with another tokenizer"):
        store.check(changed)


def test_a_store_refuses_other_languages_and_names_both_pairs(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    several = load(model_folder("m2m_100"), langs="de-en", device="cpu")
    corpus = parallel_text(tmp_path / "corpus.tsv", 20)
    build([corpus], several, tmp_path / "store", "de-en", AS_THEY_ARE)
    store = Datastore.open(tmp_path / "store")
    store.check(several)
    for pair in ("fr-en", "de-fr", "en-de"):
        other = load(model_folder("m2m_100"), langs=pair, device="cpu")
        assert other.fingerprint == several.fingerprint
        with pytest.raises(StoreError, match=rf"other languages \(.*, de-en; here: .*, {pair}\)"):
            store.check(other)


def test_the_fingerprint_is_the_models_and_not_its_precisions(model_folder: Callable[[str], Path]) -> None:
    prints = {
        load(model_folder("marian"), langs="de-en", precision=each).fingerprint for each in ("float32", "bfloat16")
    }
    assert len(prints) == 1
    assert prints.isdisjoint({load(model_folder("m2m_100"), langs="de-en").fingerprint})


def test_the_fingerprint_tells_a_change_of_any_weight(model: Model, tmp_path: Path) -> None:
    prints = {model.fingerprint}
    (path,) = model.files
    with safe_open(path, framework="pt") as file:
        names = list(file.keys())
    assert len(names) > 50
    for name in names:
        folder = copied(path.parent, tmp_path)
        change_weights(folder, name)
        prints.add(replace(model, files=(folder / path.name,)).fingerprint)
        shutil.rmtree(folder)
    assert len(prints) == len(names) + 1
