"""What a search on a GPU gains by comparing in bytes first, and whether it finds the same.

    python benchmarks/scan.py STORE TEXT [--system knn] [--k 16] [--segments 200]

The text is translated in float32 twice: as it is, and with every pair of states and rows compared as they are stored.
"""

import argparse
import time
from pathlib import Path

import torch

from knnmt import Translator
from knnmt.decode.settings import TranslateSettings
from knnmt.model.checkpoint import load
from knnmt.search import cuda
from knnmt.systems.settings import RetrievalSettings
from knnmt.translate import Translation

SETTINGS = TranslateSettings(spans=False, sentences=False, exact=False)
NEVER = 1 << 60  # rows


def main() -> None:
    """Run the comparison and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("text", type=Path, help="one segment a line")
    parser.add_argument("--system", default="knn")
    parser.add_argument("--k", type=int, default=16)
    parser.add_argument("--segments", type=int, default=200)
    parser.add_argument("--model", default="mini-de-en")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args()
    lines = options.text.read_text(encoding="utf-8").split("\n")[: options.segments]
    model = load(options.model, device=options.device, precision="float32")
    found: list[list[Translation]] = []
    for name, least in (("in bytes first", (cuda.LARGE, cuda.MANY)), ("as they are stored", (NEVER, NEVER))):
        cuda.LARGE, cuda.MANY = least
        retrieval = RetrievalSettings(system=options.system, k=options.k)
        translator = Translator(model, store=options.store, system=options.system, retrieval=retrieval)
        times = []
        for _ in range(2):
            began = time.perf_counter()
            translated = translator.translate(lines, SETTINGS)
            times.append(time.perf_counter() - began)
        found.append(translated)
        print(f"{options.system}, k = {options.k}, {name}: {times[0]:.2f} s, then {times[1]:.2f} s", flush=True)
        del translator
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
    pairs = list(zip(*found, strict=True))
    same = [(one, other) for one, other in pairs if one.tokens == other.tokens]
    apart = max((abs(one.score - other.score) for one, other in same), default=0.0)
    print(f"{len(same)} of {len(pairs)} translations are the same, their scores within {apart:.1e}")


if __name__ == "__main__":
    main()
