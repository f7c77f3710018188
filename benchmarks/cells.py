"""How often the cells of `faster` find the nearest cluster, on real text, and how long they take.

    python benchmarks/cells.py train.tsv test.de --langs de-en --cluster-size 8 --part-tokens 100000

Builds a store of several parts, whose cells are made across parts when it is opened, and then makes one part of it,
which brings its cells from the build. Clusters are small, so that the frequent types of a small corpus have as many as
those of a large one. For the tokens of the text whose types have cells, prints how often the cluster that is found is
the nearest of all, how much farther it is on average, and the time of a batch of 32 sentences: with the cells that are
searched, and with others farther away (`--reach`). Stores are made in a temporary folder, or where `--folder` says.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import torch

from knnmt.build.build import build
from knnmt.build.compact import compact
from knnmt.build.settings import BuildSettings
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model, load
from knnmt.model.represent import padded
from knnmt.retrieval.live import LiveStore
from knnmt.store.store import Store
from knnmt.systems import faster, levels
from knnmt.systems.system import Source
from knnmt.systems.view import View

BATCH, ROUNDS = 32, 5
ALL = 1 << 20  # cells that are searched: every cluster is compared


@torch.inference_mode()
def encoded(model: Model, texts: list[str]) -> list[Source]:
    """Batches of sentences."""
    rows = [row for row in model.tokenizer.encode_source(texts) if len(row) <= model.max_source]
    found = []
    for at in range(0, len(rows), BATCH):
        ids, mask = padded(rows[at : at + BATCH], model.special.pad, model.device)
        found.append(Source(ids, mask, model.transformer.encode(ids, mask).states))
    return found


def nearest(view: View, source: Source) -> torch.Tensor:
    """The cluster that each token of a batch finds. (Q,)."""
    _, types, states = source.tokens(view)
    alone = Source(types[:, None], torch.ones_like(types, dtype=torch.bool)[:, None], states[:, None])
    return faster.near_clusters(view, alone, "ranking")[:, 0]


def truly_nearest(view: View, source: Source) -> torch.Tensor:
    """The nearest cluster of all to each token of a batch. (Q,)."""
    before = faster.COARSE_PROBE, faster.COARSE_REACH
    faster.COARSE_PROBE, faster.COARSE_REACH = ALL, float("inf")
    try:
        return nearest(view, source)
    finally:
        faster.COARSE_PROBE, faster.COARSE_REACH = before


@torch.inference_mode()
def measured(store: Path, sources: list[Source], name: str) -> None:
    """Print a line about a store's cells."""
    view = LiveStore(Datastore.open(store), torch.device("cpu")).view
    offsets = levels.levels_of(view).offsets
    clusters = torch.stack([part.diff() for part in view.blocks("cluster_offsets")]).sum(dim=0)[offsets.diff() > 0]
    if not len(clusters):
        raise SystemExit(f"{name}: no type has cells: give a larger corpus or smaller clusters")
    asked, found, true, ratios = 0, 0, 0, []
    means = view.means("cluster_source")
    for source in sources:
        _, types, states = source.tokens(view)
        deep = offsets[types + 1] > offsets[types]
        picked, best = nearest(view, source)[deep], truly_nearest(view, source)[deep]
        far, near = (
            (view.search.take([block.values for block in means.blocks], means.starts, each).float() - states[deep])
            .square().sum(dim=1) for each in (picked, best)
        )  # fmt: skip
        asked, found, true = asked + len(types), found + len(picked), true + int((picked == best).sum())
        ratios.append((far / near).sqrt())
    seconds = []
    for _ in range(ROUNDS):
        began = time.perf_counter()
        for source in sources:
            faster.near_clusters(view, source, "ranking")
        seconds.append((time.perf_counter() - began) / len(sources))
    print(
        f"{name}: {len(clusters)} types with {int(clusters.min())} to {int(clusters.max())} clusters in "
        f"{int(offsets[-1])} cells; {found} of {asked} tokens; nearest {true / found:.2%}, "
        f"distance {float(torch.cat(ratios).mean()):.5f}, select {1000 * statistics.median(seconds):.2f} ms",
        flush=True,
    )


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="+")
    parser.add_argument("text", type=Path, help="one segment per line")
    parser.add_argument("--langs", required=True)
    parser.add_argument("--model", default="mini")
    parser.add_argument("--cluster-size", type=int, default=8)
    parser.add_argument("--part-tokens", type=int, default=100_000)
    parser.add_argument("--segments", type=int, default=512, help="of the text")
    reaches = [faster.COARSE_REACH, float("inf")]
    parser.add_argument("--reach", type=float, nargs="+", default=reaches, help="times the nearest cell's distance²")
    parser.add_argument("--folder", type=Path, default=None, help="where there is room")
    arguments = parser.parse_args()
    model = load(arguments.model, langs=arguments.langs, device="cpu")
    settings = BuildSettings(
        systems=("fast", "faster"), cluster_size=arguments.cluster_size, part_tokens=arguments.part_tokens
    )
    sources = encoded(model, arguments.text.read_text("utf-8").splitlines()[: arguments.segments])
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        whole = Path(folder) / "store"
        build(arguments.corpus, model, whole, arguments.langs, settings)
        torch.set_num_threads(1)
        for name in ("across parts", "one part"):
            for faster.COARSE_REACH in arguments.reach:
                measured(whole, sources, f"{name}, reach {faster.COARSE_REACH:g}")
            compact(Store.open(whole), model, full=True)


if __name__ == "__main__":
    main()
