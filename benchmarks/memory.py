"""Memory of a model and of a search on a CPU, by precision.

    python benchmarks/memory.py TEXTS [--model mini-de-en]

Each precision has a process of its own. The model is what the process holds after loading it and translating one
segment, beside what the libraries took; the search is the most that translating 32 segments with 5 beams adds to it.
"""

import argparse
import subprocess
import sys
import threading
from pathlib import Path

from knnmt import TranslateSettings, Translator
from knnmt.host import resident, return_freed
from knnmt.model.checkpoint import load
from knnmt.model.embedded import DEFAULT
from knnmt.ready import want

PRECISIONS = ("float32", "bfloat16", "int8")
WAIT = 120.0  # seconds for loops to be compiled
EVERY = 0.002  # seconds between looks


def held() -> int:
    """Bytes that this process holds, without mapped files."""
    return_freed()
    found = resident()
    assert found is not None
    return found[0]


def measure(model: str, precision: str, texts: list[str]) -> tuple[int, int]:
    """Bytes of the model, and of a search."""
    Translator(load(device="cpu")).translate(["."])  # whatever libraries allocate
    want(WAIT)
    libraries = held()
    translator = Translator(model, device="cpu", precision=precision)
    translator.translate(["."])
    loaded, most, done = held(), 0, threading.Event()

    def look() -> None:
        nonlocal most
        while not done.wait(EVERY):
            found = resident()
            most = max(most, found[0] if found else 0)

    looking = threading.Thread(target=look)
    looking.start()
    translator.translate(texts, TranslateSettings(beam=5, batch_size=len(texts)))
    done.set()
    looking.join()
    return loaded - libraries, most - loaded


def main() -> None:
    """Measure each precision in a process of its own, or one in this."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path)
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--precision", choices=PRECISIONS, help="this one alone, in this process")
    given = parser.parse_args()
    if given.precision is None:
        for precision in PRECISIONS:
            own = [sys.executable, __file__, str(given.texts), "--model", given.model, "--precision", precision]
            subprocess.run(own, check=True)
        return
    texts = given.texts.read_text(encoding="utf-8").split("\n")[:32]
    model, search = measure(given.model, given.precision, texts)
    print(f"{given.precision:9} model {model / 1e6:6.0f} MB, search {search / 1e6:6.0f} MB")


if __name__ == "__main__":
    main()
