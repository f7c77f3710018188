"""Train the gate that `similar` comes with: λ for stores that nobody tuned.

    python benchmarks/gate.py STORE=DEV … --out src/knnmt/retrieval/gates/similar.safetensors

Each STORE was built for `similar`, and DEV are the segments shown beside it: a corpus file whose other half lies beside
it (`dev.de` and `dev.en`). Show stores of several domains and sizes: a gate that has never seen a store with nothing to
say trusts every store. `--first` and `--segments` choose which segments are shown; docs/results.md says which were.
"""

import argparse
from itertools import islice
from pathlib import Path

import torch

from knnmt.corpus import Languages, read
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import load
from knnmt.overlap import overlaps
from knnmt.retrieval.gate import Gate, Purpose
from knnmt.retrieval.session import Retriever
from knnmt.systems.settings import RetrievalSettings
from knnmt.tune.gate import Lesson, train
from knnmt.tune.references import lesson

LANGUAGES = Languages("de", "en")
SYSTEM = "similar"


def main() -> None:
    """Show all segments, train, and save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="+", metavar="STORE=DEV")
    parser.add_argument("--first", type=int, default=250, help="segments of dev that are left out at the beginning")
    parser.add_argument("--segments", type=int, default=500, help="segments of dev that are shown")
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    lessons = {pair: shown(*pair.split("="), given.first, given.segments) for pair in given.pairs}
    purpose = Purpose(SYSTEM, "ffn_input", "squared")
    gate = train(Lesson.together(list(lessons.values())), purpose)
    assert gate is not None, "nothing was found"
    gate.save(given.out)
    for pair, one in lessons.items():
        print(pair, *(f"{name} {value:.4f}" for name, value in likelihoods(one, gate).items()))


def shown(store: str, dev: str, first: int, count: int) -> Lesson:
    """What a gate sees of the segments beside a store, with the settings of an untuned one."""
    opened, model = Datastore.open(store), load("mini-de-en")
    segments = list(islice(read(dev, LANGUAGES), first, first + count))
    own = overlaps(opened, [segment.source for segment in segments]).segments
    settings = RetrievalSettings(system=SYSTEM, adapt="distance")
    retriever = Retriever(opened, model.device, settings, left_out=own)
    return lesson(model, [(retriever, segments)], lambda done: None)


def likelihoods(one: Lesson, gate: Gate) -> dict[str, float]:
    """The mean log-likelihood of a reference token, in three ways."""
    ways = {"base": torch.zeros_like(one.fixed), "by distance": one.fixed, "by the gate": gate(one.seen)}
    return {name: float(one.of(one.asked).log_p(weight[one.asked]).mean()) for name, weight in ways.items()}


if __name__ == "__main__":
    main()
