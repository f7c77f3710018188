"""How fast the engine is beside Hugging Face's `generate()`: the same model, segments, batches and threads.

    python benchmarks/engine.py SOURCE.de [--model mini-de-en] [--segments 500] [--threads 2]

Both translate the same chunks in turn, so that noise hits both alike; the ratio of throughputs is given first, with a
95% interval over the chunks. Their outputs are compared too: a fast wrong engine would not count.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import transformers

from knnmt.decode.beam import search
from knnmt.decode.rehearsal import rehearse
from knnmt.model.checkpoint import Model, load
from knnmt.model.embedded import EMBEDDED, embedded_path
from knnmt.model.linear import DTYPES
from knnmt.model.represent import padded
from knnmt.ready import want

SETTINGS = ((5, 32), (1, 32), (5, 1))  # beams, batch size
LIMIT = 128


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="text, one segment a line")
    parser.add_argument("--model", default=EMBEDDED[0])
    parser.add_argument("--segments", type=int, default=500)
    parser.add_argument("--chunks", type=int, default=10, help="interleaved pairs of measurements")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--precision", default="float32")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    transformers.utils.logging.disable_progress_bar()

    model = load(options.model, device=options.device, precision=options.precision)
    rehearse(model.transformer, model.special)
    want(120.0)  # compiled loops, not the first pass on a machine
    folder = embedded_path(options.model) if options.model in EMBEDDED else options.model
    hf = (
        transformers.AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=DTYPES[options.precision])
        .to(model.device)
        .eval()
    )
    lines = options.source.read_text(encoding="utf-8").split("\n")[: options.segments]
    ids = [row[: model.max_source] for row in model.tokenizer.encode_source(lines)]
    ids.sort(key=len)  # batches of similar length, for both
    chunks = [ids[start :: options.chunks] for start in range(options.chunks)]

    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}, {options.threads} threads, {model.device}"
    )
    print("beams  batch  times as fast  95% interval    ours/s  generate/s  same tokens")
    for beams, size in SETTINGS:
        ours, theirs = engine(model, beams, size), generate(hf, model, beams, size)
        ours(chunks[0][-size:]), theirs(chunks[0][-size:])  # warm up
        pairs, same = [], 0
        for turn, chunk in enumerate(chunks):
            runs = [(0, ours), (1, theirs)][:: -1 if turn % 2 else 1]
            seconds, found = [0.0, 0.0], [[], []]  # type: ignore[var-annotated]
            for which, run in runs:
                began = time.perf_counter()
                found[which] = run(chunk)
                seconds[which] = time.perf_counter() - began
            pairs.append(seconds)
            same += sum(a == b for a, b in zip(*found, strict=True))
        spent = np.array(pairs)
        ratios = np.log(spent[:, 1] / spent[:, 0])
        middle, spread = ratios.mean(), 1.96 * ratios.std(ddof=1) / np.sqrt(len(ratios))
        low, high = np.exp(middle - spread), np.exp(middle + spread)
        per_second = len(ids) / spent.sum(axis=0)
        print(
            f"{beams:5} {size:6} {np.exp(middle):14.2f}  {low:5.2f} to {high:5.2f} "
            f"{per_second[0]:9.1f} {per_second[1]:11.1f}  {same} of {len(ids)}",
            flush=True,
        )


Run = Callable[[list[list[int]]], list[list[int]]]


def engine(model: Model, beams: int, size: int) -> Run:
    """Our own search."""

    @torch.inference_mode()
    def run(chunk: list[list[int]]) -> list[list[int]]:
        found = []
        for start in range(0, len(chunk), size):
            ids, mask = padded(chunk[start : start + size], model.special.pad, model.device)
            encoded = model.transformer.encode(ids, mask)
            limits = [LIMIT - 1] * len(ids)
            best = search(model.transformer, encoded, model.special, limits, beams=beams, early_stopping=beams == 1)
            found += [list(hypotheses[0].tokens) for hypotheses in best]
        return found

    return run


def generate(hf: transformers.PreTrainedModel, model: Model, beams: int, size: int) -> Run:
    """Hugging Face's."""
    pad = model.special.pad

    @torch.inference_mode()
    def run(chunk: list[list[int]]) -> list[list[int]]:
        found = []
        for start in range(0, len(chunk), size):
            ids, mask = padded(chunk[start : start + size], pad, model.device)
            rows = hf.generate(
                input_ids=ids, attention_mask=mask.long(), num_beams=beams, max_length=LIMIT, do_sample=False,
                bad_words_ids=[[token] for token in model.special.banned],
            )  # fmt: skip
            found += [[token for token in row[1:] if token != pad] for row in rows.tolist()]
        return found

    return run


if __name__ == "__main__":
    main()
