"""The engine on a GPU beside Hugging Face's `generate()`: the first pass over a text, the next ones, one at a time.

    python benchmarks/gpu.py SOURCE.de [--models mini-de-en random:512:6:8000 random:1024:6:42000] [--segments 2998]

Both search with 5 beams in float16, ids in and ids out, sorted by length. The engine chooses its batches; `generate()`
is given each of `--sizes`, and its best one counts. `random:WIDTH:LAYERS:VOCABULARY` is a Marian model with random
weights, for its speed alone: it decodes `--length` tokens for every segment.
"""

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from knnmt.decode.batches import batches
from knnmt.decode.beam import search
from knnmt.decode.rehearsal import rehearse
from knnmt.model.checkpoint import FAMILIES, convert, load
from knnmt.model.embedded import EMBEDDED, embedded_path
from knnmt.model.represent import padded
from knnmt.model.tokenizer import SpecialTokens
from knnmt.model.transformer import Transformer

BEAMS = 5
MOST = 512  # tokens
Ids = list[list[int]]


class Engines:
    """One model in both engines, on one device."""

    def __init__(self, hf: Any, ours: Transformer, special: SpecialTokens, length: int | None) -> None:
        self.hf, self.ours, self.special, self.length = hf, ours, special, length

    def engine(self, ids: Ids, size: int | None = None) -> None:
        """Our search, in batches of `size`, or of what suits the device."""
        device = self.ours.device
        for rows in batches([len(row) for row in ids], size, device, self.ours.architecture, BEAMS):
            given = padded([ids[row] for row in rows], self.special.pad, device, self.ours.architecture.max_positions)
            limits = [(self.length or 3 * len(ids[row]) + 30) - 1 for row in rows]
            with torch.inference_mode():
                search(self.ours, self.ours.encode(*given), self.special, limits, beams=BEAMS)

    def generate(self, ids: Ids, size: int) -> None:
        """Theirs."""
        for start in range(0, len(ids), size):
            given, mask = padded(ids[start : start + size], self.special.pad, self.ours.device)
            with torch.inference_mode():
                self.hf.generate(
                    input_ids=given, attention_mask=mask.long(), num_beams=BEAMS, max_length=self.length or MOST
                )


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="text, one segment a line")
    parser.add_argument("--models", nargs="+", default=[EMBEDDED[0], "random:512:6:8000", "random:1024:6:42000"])
    parser.add_argument("--segments", type=int, default=2998)
    parser.add_argument("--sizes", type=int, nargs="+", default=[256, 512, 1024])
    parser.add_argument("--alone", type=int, default=40, help="segments that are translated one at a time")
    parser.add_argument("--length", type=int, default=40, help="tokens that a random model decodes")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    lines = options.source.read_text(encoding="utf-8").split("\n")[: options.segments]
    tokenizer = load(device="cpu").tokenizer
    lengths = sorted((len(row) for row in tokenizer.encode_source(lines)), reverse=True)
    print(f"torch {torch.__version__}, transformers {transformers.__version__}, {options.device}")
    for name in options.models:
        print(f"\n{name}, {len(lines)} segments")
        engines, ids = made(name, lines, lengths, options)
        for line in compared(engines, ids, options):
            print(line, flush=True)


def compared(engines: Engines, ids: Ids, options: argparse.Namespace) -> Iterator[str]:
    """Lines of figures."""
    if engines.ours.device.type == "cuda":
        rehearse(engines.ours, engines.special)  # as a `Translator` does when it loads a model
    gc.collect()  # what was imported: a process of `knnmt` has this put off
    first, *rounds = (seconds(lambda: engines.engine(ids)) for _ in range(4))
    ours = float(np.median(rounds))
    yield f"engine: first pass {first:.2f} s, then {ours:.2f} s; first/next {first / ours:.2f}"
    theirs = {}
    for size in options.sizes:
        try:
            cold, theirs[size] = (seconds(partial(engines.generate, ids, size)) for _ in range(2))
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            continue
        yield f"generate(), batches of {size}: first pass {cold:.2f} s, then {theirs[size]:.2f} s"
    yield f"times as fast as generate() at its best batch size: {min(theirs.values()) / ours:.1f}"
    alone = ids[:: max(1, len(ids) // options.alone)][: options.alone]
    pairs = [(seconds(lambda: engines.engine(alone, 1)), seconds(lambda: engines.generate(alone, 1))) for _ in range(2)]
    own, other = (1e3 * some / len(alone) for some in pairs[-1])
    yield f"one at a time: {own:.0f} and {other:.0f} ms a segment, {other / own:.1f} times as fast"


def made(name: str, lines: list[str], lengths: list[int], options: argparse.Namespace) -> tuple[Engines, Ids]:
    """A model in both engines, and what it translates, longest first."""
    dtype = torch.float16 if options.device.startswith("cuda") else torch.float32
    if not name.startswith("random:"):
        model = load(name, device=options.device, precision=str(dtype).removeprefix("torch."))
        folder = embedded_path(name) if name in EMBEDDED else name
        hf = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).to(model.device).eval()
        ids = [row[: model.max_source] for row in model.tokenizer.encode_source(lines)]
        return Engines(hf, model.transformer, model.special, None), sorted(ids, key=len, reverse=True)
    width, layers, vocabulary = map(int, name.split(":")[1:])
    torch.manual_seed(0)
    config = transformers.MarianConfig(
        vocab_size=vocabulary, d_model=width, max_position_embeddings=MOST,
        encoder_layers=layers, decoder_layers=layers, encoder_ffn_dim=4 * width, decoder_ffn_dim=4 * width,
        encoder_attention_heads=width // 64, decoder_attention_heads=width // 64,
        pad_token_id=0, eos_token_id=1, decoder_start_token_id=0, forced_eos_token_id=1, bos_token_id=None,
    )  # fmt: skip
    random = transformers.MarianMTModel(config).to(options.device, dtype).eval()
    random.generation_config.bad_words_ids = None
    special = SpecialTokens(start=0, end=1, pad=0, prefix=(), forced_end=True, banned=(0,))
    rng = np.random.default_rng(0)
    ids = [rng.integers(2, vocabulary, length).tolist() for length in lengths]
    return Engines(random, convert(random, FAMILIES["marian"]), special, options.length), ids


def seconds(run: Callable[[], None]) -> float:
    """The time of a run."""
    begun = time.perf_counter()
    run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


if __name__ == "__main__":
    main()
