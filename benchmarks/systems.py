"""Time of each system as a ratio to base MT in the same run: interleaved repetitions, selection and set-up included.

python benchmarks/systems.py --store STORE --input test.de [--systems fast,faster] [--pairs 10] [--threads 2]
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch

from knnmt.datastore.store import Datastore
from knnmt.model.checkpoint import load
from knnmt.retrieval.settings import RetrievalSettings
from knnmt.translate import TranslateSettings, Translator


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="mini-de-en")
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--systems", default="fast,faster")
    parser.add_argument("--segments", type=int, default=500)
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("-k", type=int, default=16)
    parser.add_argument("-c", type=int, default=64)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lambda", dest="weight", type=float, default=0.0, help="0: equal steps for all systems")
    given = parser.parse_args()

    torch.set_num_threads(given.threads)
    model = load(given.model, device=given.device)
    store = Datastore.open(given.store)
    texts = given.input.read_text(encoding="utf-8").split("\n")[: given.segments]
    settings = TranslateSettings(beam=given.beam, batch_size=given.batch_size)
    translators = {"base": Translator(model)}
    for system in given.systems.split(","):
        retrieval = RetrievalSettings(system=system, k=given.k, c=given.c, weight=given.weight)
        translators[system] = Translator(model, store, retrieval=retrieval)
    for translator in translators.values():
        translator.translate(texts[: given.batch_size], settings)  # warm up, and page the arrays in

    seconds: dict[str, list[float]] = {name: [] for name in translators}
    for _ in range(given.pairs):
        for name, translator in translators.items():
            began = time.perf_counter()
            translator.translate(texts, settings)
            if model.device.type == "cuda":
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - began)
    base = np.array(seconds["base"])
    print(f"base: {np.median(base):.2f} s for {len(texts)} segments, beam {given.beam}, batch {given.batch_size}")
    for name, found in seconds.items():
        if name != "base":
            ratios = np.array(found) / base
            spread = 1.96 * ratios.std(ddof=1) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
            print(f"{name}: {np.median(ratios):.3f} times base (mean {ratios.mean():.3f} ± {spread:.3f})")


if __name__ == "__main__":
    main()
