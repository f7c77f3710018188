"""Tiny, randomly initialised Hugging Face models of each family: they stand in for those of the hub."""

import gc
import io
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch

from knnmt import Datastore
from knnmt.build import cut
from knnmt.decode.rehearsal import rehearse
from knnmt.model.checkpoint import FAMILIES, Model, convert, load
from knnmt.model.tokenizer import SpecialTokens
from knnmt.ready import want

if "PYTEST_XDIST_WORKER" in os.environ:  # one of several processes, which share the cores
    for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS"):  # of the processes that it starts
        os.environ.setdefault(name, "1")
    torch.set_num_threads(1)

MEMORY = Path("/dev/shm")  # a file system in memory: to replace a file on a disk takes milliseconds
if "TMPDIR" not in os.environ and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free > 4 << 30:
    os.environ["TMPDIR"] = tempfile.tempdir = str(MEMORY)  # of this process, and of those that it starts

if sys.platform == "win32":  # these fork, open pseudo-terminals or limit what a process may use
    collect_ignore_glob = [
        "cli/*", "cluster/*", "build/test_build_refused.py", "build/test_compact_interrupted.py",
        "build/test_interrupted.py", "build/test_resumed.py", "build/test_thirty_kills.py", "store/test_lessons.py",
        "store/test_taught_interrupted.py",
    ]  # fmt: skip

VOCABULARY, PAD, END, TAG = 997, 1, 2, 7


@pytest.fixture(scope="session", autouse=True)
def loops() -> None:
    """Compiled loops are ready before the first test, and before any that forks.

    The million objects of libraries and tests stay: the collector need not look at them again and again.
    """
    special = SpecialTokens(start=END, end=END, pad=PAD, prefix=(), forced_end=True, banned=(PAD,))
    rehearse(convert(tiny_model("marian"), FAMILIES["marian"]), special)
    want(300)
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def unsynced() -> Iterator[None]:
    """Nobody pulls the plug: what is written need not reach the disk, which takes milliseconds each time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


# seed of the weights and push towards the end, with which a family gives texts of many lengths
SHAPED = {"marian": (0, 3.0), "fsmt": (0, 3.0), "m2m_100": (2, 3.0), "bart": (0, 4.0), "mbart": (0, 3.0)}


def tiny_model(family: str, vocabulary: int = VOCABULARY) -> Any:
    """A model of two layers and width 32 whose texts end, at many lengths; tied to its input, it would stammer."""
    import transformers as t

    shape = {
        "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
        "decoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "max_position_embeddings": 64,
        "pad_token_id": PAD, "eos_token_id": END, "bos_token_id": 0, "decoder_start_token_id": END,
        "init_std": 0.15, "tie_word_embeddings": False, "scale_embedding": family not in ("bart",),
    }  # fmt: skip
    seed, push = SHAPED[family]
    torch.manual_seed(seed)
    match family:
        case "marian":
            model = t.MarianMTModel(t.MarianConfig(vocab_size=vocabulary, activation_function="swish", **shape))
        case "fsmt":
            vocabularies = {"src_vocab_size": min(333, vocabulary), "tgt_vocab_size": vocabulary, "langs": ["de", "en"]}
            model = t.FSMTForConditionalGeneration(t.FSMTConfig(**vocabularies, **shape))
        case "m2m_100":
            model = t.M2M100ForConditionalGeneration(t.M2M100Config(vocab_size=vocabulary, **shape))
        case "bart":
            model = t.BartForConditionalGeneration(t.BartConfig(vocab_size=vocabulary, **shape))
        case "mbart":
            model = t.MBartForConditionalGeneration(t.MBartConfig(vocab_size=vocabulary, **shape))
    decoder = model.model.decoder
    head = decoder.output_projection if family == "fsmt" else model.lm_head
    last = decoder.layer_norm if hasattr(decoder, "layer_norm") else decoder.layers[-1].final_layer_norm
    with torch.no_grad():
        for weight in model.parameters():
            if weight.ndim == 1:  # biases and norms are constant at the start, which would hide mistakes with them
                weight += 0.1 * torch.randn_like(weight)
        end = head.weight[END]
        last.bias += push * end / end.norm() ** 2  # the end gets likely, so that texts have several lengths
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias += 0.5 * torch.randn(1, vocabulary)
    settings = model.generation_config
    settings.bad_words_ids = [[PAD]]
    settings.num_beams, settings.max_length, settings.do_sample = 1, 40, False
    settings.forced_bos_token_id = TAG if family in ("m2m_100", "mbart") else None
    settings.forced_eos_token_id = END if family != "m2m_100" else None
    settings.decoder_start_token_id, settings.pad_token_id, settings.eos_token_id = END, PAD, END
    return model.eval()


@pytest.fixture(params=SHAPED)
def hf(request: pytest.FixtureRequest) -> Any:
    """A tiny model of each family in turn."""
    return tiny_model(request.param)


@pytest.fixture
def tiny() -> Callable[..., Any]:
    """Make a tiny model of a given family."""
    return tiny_model


@pytest.fixture
def ragged() -> tuple[torch.Tensor, torch.Tensor]:
    """Source ids (12, 17) of many lengths and their mask."""
    rng = torch.Generator().manual_seed(3)
    lengths = torch.randint(2, 18, (12,), generator=rng)
    lengths[0], lengths[1] = 17, 2
    ids = torch.randint(8, 300, (12, 17), generator=rng)
    mask = torch.arange(17) < lengths[:, None]
    ids[torch.arange(12), lengths - 1] = END
    return ids.masked_fill(~mask, PAD), mask


WORDS = (
    "der die das ein eine Haus Hund Katze Baum Garten läuft schläft sieht groß klein und im "
    "the a house dog cat tree garden runs sleeps sees big small and in"
).split()


def tiny_tokenizer(family: str, folder: Path) -> Any:
    """A tokenizer of a family's own class, over a handful of words."""
    import transformers as t

    rng = random.Random(0)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(3, 9))) + "." for _ in range(300)]
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines), model_writer=written, vocab_size=120, hard_vocab_limit=False,
        eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2,
    )  # fmt: skip
    spm = folder / "pieces.spm"
    spm.write_bytes(written.getvalue())
    model = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    pieces = [model.id_to_piece(i) for i in range(2, len(model))]
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    vocabulary = folder / "pieces.json"
    vocabulary.write_text(json.dumps({piece: i for i, piece in enumerate(specials + pieces)}), encoding="utf-8")
    match family:
        case "marian":
            return t.MarianTokenizer(str(spm), str(spm), str(vocabulary), source_lang="de", target_lang="en")
        case "fsmt":
            letters = sorted(set("".join(lines)))
            marked = [*specials, "do", *letters, *(letter + "</w>" for letter in letters)]
            for side in ("src", "tgt"):
                numbered = {piece: i for i, piece in enumerate(marked)}
                (folder / f"{side}.json").write_text(json.dumps(numbered), encoding="utf-8")
                marked[4:] = reversed(marked[4:])  # the sides differ, as those of en-ru do
            (folder / "merges.txt").write_text("#version: 0.2\nd o 10\n", encoding="utf-8")
            files = [str(folder / name) for name in ("src.json", "tgt.json", "merges.txt")]
            return t.FSMTTokenizer(["de", "en"], *files)
        case "m2m_100":
            return t.M2M100Tokenizer(str(vocabulary), str(spm))
        case "mbart":
            scored = [(piece, 0.0) for piece in specials] + [(piece, -float(i)) for i, piece in enumerate(pieces)]
            return t.MBart50Tokenizer(vocab=scored, src_lang="en_XX", tgt_lang="de_DE")
        case "nllb":
            letters = sorted(set("▁" + "".join(lines)) - {" "})
            return t.NllbTokenizer(vocab={piece: i for i, piece in enumerate(specials + letters)}, merges=[])
        case _:
            raise ValueError(family)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """A saved model of a family with its tokenizer, as it would come from the hub."""
    made: dict[str, Path] = {}

    def make(family: str) -> Path:
        if family not in made:
            folder = tmp_path_factory.mktemp(family)
            tokenizer = tiny_tokenizer(family, folder)
            codes = getattr(tokenizer, "lang_code_to_id", {"": 0})
            size = max(len(tokenizer), max(codes.values()) + 1)
            network = tiny_model("m2m_100" if family == "nllb" else family, size)
            network.save_pretrained(folder / "model")
            tokenizer.save_pretrained(folder / "model")
            made[family] = folder / "model"
        return made[family]

    return make


@pytest.fixture(scope="session")
def model(model_folder: Callable[[str], Path]) -> Model:
    """The tiny Marian model, loaded; one thread is enough for it."""
    torch.set_num_threads(1)
    return load(model_folder("marian"), langs="de-en", device="cpu")


@pytest.fixture(scope="module")
def short_runs() -> Iterator[None]:
    """Parts end where runs of segments end: runs of one batch, so that a small corpus can be cut."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cut, "RUN", 1)
        yield


@pytest.fixture
def store(sealed: Path, tmp_path: Path) -> Datastore:
    """A copy of the store that a module builds as `sealed`."""
    return Datastore.open(shutil.copytree(sealed, tmp_path / "store"))
