"""What retrieval adds to a translation on a CPU, piece by piece: selection a sentence, and each beam's part of a step.

    python benchmarks/similar.py STORE --source FILE --target FILE [--system similar] [--segments 96] [--rounds 7]

The model reads the references; five states that follow each other stand for five beams. One thread, its own time on the
processor, and the fastest of the rounds: other programs on the machine matter little.
"""

import argparse
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from knnmt.corpus import Segment
from knnmt.datastore import Datastore
from knnmt.decode.settings import TranslateSettings
from knnmt.model.checkpoint import load
from knnmt.model.embedded import DEFAULT
from knnmt.model.normalise import normalise
from knnmt.model.transformer import States
from knnmt.ready import want
from knnmt.systems.settings import RetrievalSettings
from knnmt.translate import Translator
from knnmt.tune.references import Reference, show

BEAMS = TranslateSettings().beam


def fastest(rounds: int, work: Callable[..., object], *given: object) -> float:
    """Seconds of the best of the rounds; each works on copies of the tensors."""
    found = []
    for _ in range(rounds):
        own = [each.clone() if isinstance(each, torch.Tensor) else each for each in given]
        began = time.thread_time()
        work(*own)
        found.append(time.thread_time() - began)
    return min(found)


def steps(some: Reference) -> Iterator[tuple[States, torch.Tensor]]:
    """States and logits of five positions at a time."""
    for first in range(0, some.wanted.size(1) - BEAMS + 1, BEAMS):
        part = slice(first, first + BEAMS)
        kinds = (each[:, part].contiguous() for each in (some.states.ffn_input, some.states.output))
        yield States(*kinds), some.logits[:, part].contiguous()


@torch.inference_mode()
def main() -> None:
    """Time the pieces and print them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store", type=Path)
    parser.add_argument("--source", type=Path, required=True, help="text, one segment a line")
    parser.add_argument("--target", type=Path, required=True, help="its translation")
    parser.add_argument("--model", default=DEFAULT)
    parser.add_argument("--system", default="similar")
    parser.add_argument("--segments", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    model = load(options.model, device="cpu")
    sides = (
        path.read_text(encoding="utf-8").split("\n")[: options.segments] for path in (options.source, options.target)
    )
    segments = [Segment(*pair) for pair in zip(*sides, strict=True)]
    retriever = Translator(
        model, Datastore.open(options.store), retrieval=RetrievalSettings(system=options.system)
    ).retriever
    assert retriever is not None
    want(120.0)
    sentences = beams = 0
    select = mix = alone = together = 0.0
    for some in show(model, retriever, segments):
        sentences += len(some.segments)
        select += fastest(options.rounds, retriever.look, *some.source)
        for states, logits in steps(some):
            beams += logits.size(0) * BEAMS
            alone += fastest(options.rounds, normalise, logits)
            mix += fastest(options.rounds, some.look.mix, states, logits, normalise(logits))
            together += fastest(options.rounds, some.look.mix, states, logits, None)
    print(f"select: {1e6 * select / sentences:.0f} µs a sentence, of {sentences}")
    for name, spent in (("log Σ exp", alone), ("look up and mix", mix), ("both in one", together)):
        print(f"{name}: {1e6 * spent / beams:.2f} µs a beam and step, of {beams:,}")


if __name__ == "__main__":
    main()
