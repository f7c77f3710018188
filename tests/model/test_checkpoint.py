"""Loading: each family with its tokenizer and language tags, and one clear line where it cannot be."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import transformers

from knnmt.errors import ModelError, UsageError
from knnmt.model.checkpoint import load
from knnmt.translate import TranslateSettings, Translator

Folder = Callable[[str], Path]
SENTENCES = ["der Hund läuft im Garten.", "das Haus", "die Katze sieht der Hund und die Katze schläft."]


@pytest.mark.parametrize(
    ("family", "langs", "source", "target"),
    [
        ("m2m_100", "de-en", "de", "en"),
        ("nllb", "de-en", "deu_Latn", "eng_Latn"),
        ("nllb", "deu_Latn-zho_Hans", "deu_Latn", "zho_Hans"),
        ("mbart", "de-en", "de_DE", "en_XX"),
        ("fsmt", None, "de", "en"),
        ("marian", "de-en", "de", "en"),
    ],
)
def test_translations_equal_generate(
    model_folder: Folder, family: str, langs: str | None, source: str, target: str
) -> None:
    folder = model_folder(family)
    translator = Translator(load(folder, langs=langs))
    assert (translator.model.tokenizer.source, translator.model.tokenizer.target) == (source, target)

    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=torch.float32)
    forced = {}
    if family in ("m2m_100", "nllb", "mbart"):
        tokenizer.src_lang = source
        tag = f"__{target}__" if family == "m2m_100" else target
        forced = {"forced_bos_token_id": tokenizer.convert_tokens_to_ids(tag)}
    inputs = tokenizer(SENTENCES, return_tensors="pt", padding=True)
    inputs.pop("token_type_ids", None)
    expected = network.generate(**inputs, num_beams=3, max_length=21, **forced)
    found = translator.translate(SENTENCES, TranslateSettings(beam=3, max_length=20))
    for translation, row in zip(found, expected.tolist(), strict=True):
        assert list(translation.tokens) == [token for token in row[1:] if token != network.config.pad_token_id]
        assert translation.text == tokenizer.decode(row, skip_special_tokens=True).strip()


def test_fsmt_target_ids_are_of_the_target_vocabulary(model_folder: Folder) -> None:
    tokenizer = load(model_folder("fsmt")).tokenizer
    (source,), (target,) = tokenizer.encode_source(["dog"]), tokenizer.encode_target(["dog"])
    assert source[:-1] != target
    assert tokenizer.decode(target) == "dog"


@pytest.mark.parametrize("family", ["marian", "m2m_100", "nllb", "mbart", "fsmt"])
def test_control_tokens_in_a_text_are_text(model_folder: Folder, family: str) -> None:
    """`</s>` is the end of an HTML tag as well: it must not end a sentence."""
    model = load(model_folder(family), langs="de-en")
    (plain,), (odd,) = (model.tokenizer.encode_source([text]) for text in ("Haus Hund", "Haus </s> <pad> Hund"))
    assert odd.count(model.special.end) == plain.count(model.special.end)
    assert model.special.pad not in odd
    (target,) = model.tokenizer.encode_target(["dog </s> <pad> cat"])
    assert not {model.special.end, model.special.pad} & set(target)


@pytest.mark.parametrize("precision", ["float16", "bfloat16", "int8"])
def test_lower_precision_runs_on_a_cpu(model_folder: Folder, precision: str) -> None:
    found = Translator(load(model_folder("marian"), device="cpu", precision=precision)).translate(["der Hund"])
    assert found[0].tokens


def test_packing_changes_the_layout_not_the_numbers(model_folder: Folder) -> None:
    packed = load(model_folder("marian")).transformer
    hf = transformers.AutoModelForSeq2SeqLM.from_pretrained(model_folder("marian"), dtype=torch.float32)
    ids = torch.tensor([[5, 6, 7, 2]])
    with torch.inference_mode():
        expected = hf(input_ids=ids, decoder_input_ids=ids, use_cache=False).logits
        states = packed.force(ids, packed.encode(ids, torch.ones_like(ids, dtype=torch.bool)))
        torch.testing.assert_close(packed.logits(states.output), expected, atol=1e-4, rtol=1e-5)
    if torch.backends.mkldnn.is_available():
        assert not packed.projection.weight.numel()


@pytest.mark.parametrize(
    ("family", "langs", "message"),
    [
        ("m2m_100", None, "choose two"),
        ("m2m_100", "de-xx", "'xx' is unknown"),
        ("nllb", "de-zh", "'zh' is ambiguous.*zho_Hans, zho_Hant"),
        ("marian", "fr-en", "this is a de-en model"),
        ("fsmt", "en-de", "this is a de-en model"),
        ("marian", "deutsch", "no language pair"),
    ],
)
def test_languages_that_a_model_does_not_know(
    model_folder: Folder, family: str, langs: str | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load(model_folder(family), langs=langs)


def test_a_folder_that_is_not_there() -> None:
    with pytest.raises(UsageError, match=r"no model at \./nowhere: pass a folder"):
        load("./nowhere")


def test_a_hub_id_that_cannot_be_reached(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no network")

    monkeypatch.setattr("urllib.request.getproxies", dict)
    monkeypatch.setattr("socket.create_connection", refuse)
    with pytest.raises(
        ModelError, match=r"the hub cannot be reached; pass a local folder, or run `hf download no/where`"
    ):
        load("no/where")


def test_a_folder_without_a_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no config\.json in this folder"):
        load(tmp_path)


def test_a_model_that_does_not_translate(tmp_path: Path) -> None:
    transformers.BertConfig(hidden_size=8, num_attention_heads=2, num_hidden_layers=1).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="unsupported model type 'bert'"):
        load(tmp_path)


def test_a_configuration_that_is_no_json(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{", encoding="utf-8")
    with pytest.raises(ModelError, match="cannot load the model"):
        load(tmp_path)


def test_weights_that_are_cut_short_or_missing(model_folder: Folder, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(model_folder("marian"), broken)
    weights = broken / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:2000])
    with pytest.raises(ModelError, match="cannot load the model"):
        load(broken)
    weights.unlink()
    with pytest.raises(ModelError, match="cannot load the model"):
        load(broken)


def test_weights_that_lack_a_part(model_folder: Folder, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    partial = tmp_path / "partial"
    shutil.copytree(model_folder("marian"), partial)
    weights = load_file(partial / "model.safetensors")
    del weights["model.decoder.layers.1.fc1.weight"]
    save_file(weights, partial / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"1 weights missing \(model\.decoder\.layers\.1\.fc1\.weight"):
        load(partial)


def test_an_activation_nobody_knows(model_folder: Folder, tmp_path: Path) -> None:
    odd = tmp_path / "odd"
    shutil.copytree(model_folder("marian"), odd)
    config = json.loads((odd / "config.json").read_text())
    (odd / "config.json").write_text(json.dumps(config | {"activation_function": "tanh"}))
    with pytest.raises(ModelError, match="activation 'tanh'"):
        load(odd)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"device": "gpu"}, "unknown device"),
        ({"device": "meta"}, "unsupported device"),
        ({"precision": "int3"}, "unknown precision"),
    ],
)
def test_settings_that_make_no_sense(model_folder: Folder, option: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load(model_folder("marian"), **option)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_cuda_without_a_gpu(model_folder: Folder) -> None:
    with pytest.raises(UsageError, match="is not available"):
        load(model_folder("marian"), device="cuda")
