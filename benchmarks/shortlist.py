"""How much faster a shortlist makes the engine: the same model, segments, batches and threads, with and without.

    python benchmarks/shortlist.py SOURCE.de --shortlist FILE [--model mini-de-en] [--segments 64] [--rounds 5]

Both translate the same segments in turn, so that noise hits both alike; the ratio of times is given with a 95% interval
over the rounds, and how many translations differ. With --store, both retrieve.
"""

import argparse
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from knnmt.decode.settings import TranslateSettings
from knnmt.model.checkpoint import load
from knnmt.model.embedded import DEFAULT
from knnmt.ready import want
from knnmt.translate import Translator

SETTINGS = ((5, 32), (5, 1), (1, 32))  # beams, batch size


def main() -> None:
    """Run the comparison and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="text, one segment a line")
    parser.add_argument("--shortlist", type=Path, required=True)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--system")
    parser.add_argument("--segments", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    model = load(options.model, device="cpu", precision=options.precision, shortlist=options.shortlist)
    lines = options.source.read_text(encoding="utf-8").split("\n")[: options.segments]
    runs = [Translator(each, options.store, system=options.system) for each in (replace(model, shortlists=None), model)]
    want(120.0)  # compiled loops, not the first pass on a machine
    print("beams  batch  times as fast  95% interval  segments/s without  with  translations that differ", flush=True)
    for beams, size in SETTINGS:
        settings = TranslateSettings(beam=beams, batch_size=size, exact=False)
        texts = lines if size > 1 else lines[: len(lines) // 4]
        spent, found = np.empty((options.rounds, 2)), [[""], [""]]
        for turn in range(-1, options.rounds):  # the first warms up
            for which in (0, 1) if turn % 2 else (1, 0):
                began = time.perf_counter()
                found[which] = [each.text for each in runs[which].translate(texts, settings)]
                spent[turn, which] = time.perf_counter() - began
        ratios = np.log(spent[:, 0] / spent[:, 1])
        spread = 1.96 * ratios.std(ddof=1) / len(ratios) ** 0.5
        middle, low, high = np.exp(ratios.mean() + np.array([0.0, -spread, spread]))
        rates = len(texts) / spent.mean(axis=0)
        differ = sum(one != other for one, other in zip(*found, strict=True))
        print(
            f"{beams:5} {size:6} {middle:14.2f}  {low:5.2f} to {high:5.2f} {rates[0]:18.1f} {rates[1]:5.1f}  "
            f"{differ} of {len(texts)}",
            flush=True,
        )


if __name__ == "__main__":
    main()
