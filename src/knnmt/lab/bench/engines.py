"""Other engines on the same model, texts and batches: Hugging Face's `generate()`, and CTranslate2 where installed."""

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from knnmt.lab.bench.runner import Run, Runner, Skipped, Variant
from knnmt.lab.bench.settings import BenchSettings
from knnmt.model.checkpoint import Model
from knnmt.model.linear import DTYPES
from knnmt.model.represent import padded
from knnmt.trace import NO_TRACE, Trace

LIMIT = 3, 30  # the most tokens of a translation for one of its source, and besides, as `Translator` has it


def other_engines(model: Model, settings: BenchSettings) -> tuple[list[Runner], list[Skipped]]:
    """The other engines that are here, and why one is not."""
    runners, skipped = [], []
    for name in named(model):
        if name.startswith("ctranslate2") and find_spec("ctranslate2") is None:
            skipped.append(Skipped(name, "", "not installed: pip install ctranslate2"))
            continue
        try:
            run = ENGINES[name](model, settings)
            run(["."])
        except Exception as error:  # whatever another library raises for a model or a device that it cannot take
            reason = str(error).strip().split("\n")[0]
            skipped.append(Skipped(name, "", f"cannot run this model: {type(error).__name__}: {reason}"))
        else:
            runners.append(Runner(Variant(name, settings), run, lambda run=run: run))  # type: ignore[misc]
    return runners, skipped


def named(model: Model) -> list[str]:
    """The engines that a model is compared with: each at its best on the device."""
    if model.device.type == "cpu":
        return ["generate()", "ctranslate2 float32", "ctranslate2 int8"]
    return ["generate()", "generate(), compiled", "ctranslate2 float16", "ctranslate2 int8_float16"]


def generate(model: Model, settings: BenchSettings, cache: str | None = None) -> Run:
    """Hugging Face's search, with the same limits and penalties; a static cache has its steps compiled on a GPU."""
    import transformers

    special, folder = model.special, model.files[0].parent
    with _no_bars():
        hf: Any = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=DTYPES[model.transformer.precision])
    hf = hf.to(model.device).eval()

    @torch.inference_mode()
    def run(texts: list[str], trace: Trace = NO_TRACE, /) -> list[str]:
        ids, mask = padded(model.tokenizer.encode_source(texts), special.pad, model.device)
        rows = hf.generate(
            input_ids=ids, attention_mask=mask.long(), num_beams=settings.beam, do_sample=False,
            max_length=min(_limit(ids.size(1)) + 1, model.transformer.architecture.max_positions),
            early_stopping=settings.beam == 1, length_penalty=model.length_penalty,
            decoder_start_token_id=special.start, forced_bos_token_id=special.prefix[0] if special.prefix else None,
            bad_words_ids=[[token] for token in special.banned] or None, cache_implementation=cache,
        )  # fmt: skip
        return [model.tokenizer.decode(row) for row in rows.tolist()]

    return run


def ctranslate2(model: Model, settings: BenchSettings, precision: str) -> Run:
    """CTranslate2 in a precision, with as many threads."""
    engine: Any = import_module("ctranslate2")
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "converted"
        with _no_bars():
            converter = engine.converters.TransformersConverter(str(model.files[0].parent))
            converter.convert(str(place), quantization=precision)
        translator = engine.Translator(
            str(place), device=model.device.type, device_index=model.device.index or 0, compute_type=precision,
            inter_threads=1, intra_threads=torch.get_num_threads(),
        )  # fmt: skip
    tokenizer, prefix = model.tokenizer, model.tokenizer.pieces(model.special.prefix)
    vocabulary = tokenizer.pieces(range(model.transformer.architecture.target_vocabulary))
    ids_of = {piece: number for number, piece in enumerate(vocabulary)}

    def run(texts: list[str], trace: Trace = NO_TRACE, /) -> list[str]:
        ids = tokenizer.encode_source(texts)
        results = translator.translate_batch(
            [tokenizer.pieces(row) for row in ids], target_prefix=[prefix] * len(ids) if prefix else None,
            beam_size=settings.beam, length_penalty=model.length_penalty,
            max_decoding_length=_limit(max(map(len, ids))),
        )  # fmt: skip
        return [tokenizer.decode([ids_of[piece] for piece in result.hypotheses[0]]) for result in results]

    return run


ENGINES: dict[str, Callable[[Model, BenchSettings], Run]] = {
    "generate()": generate,
    "generate(), compiled": partial(generate, cache="static"),
    "ctranslate2 float32": partial(ctranslate2, precision="float32"),
    "ctranslate2 int8": partial(ctranslate2, precision="int8"),
    "ctranslate2 float16": partial(ctranslate2, precision="float16"),
    "ctranslate2 int8_float16": partial(ctranslate2, precision="int8_float16"),
}


def _limit(length: int) -> int:
    return LIMIT[0] * length + LIMIT[1]


@contextmanager
def _no_bars() -> Iterator[None]:
    """No progress bars of transformers between our own lines."""
    from transformers.utils import logging as theirs

    shown = theirs.is_progress_bar_enabled()
    theirs.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            theirs.enable_progress_bar()
