"""How selection and lookup grow with the number of parts: a synthetic store as large as a cluster builds it.

    python benchmarks/parts.py 1e7 --parts 100 --distinct 10 --folder /data
    python benchmarks/parts.py 1e7 --parts 100 --distinct 100 --systems faster --beside 1e6 --rounds 3

Makes `distinct` parts of so many tokens, about 126 bytes each (7 for `faster` alone), and a store of `parts` parts in
which each of them appears several times (as links: the disk holds it once). Prints, for each system, what `knnmt bench
--synthetic` prints for one part. With `--beside`, a store of one part of that size is measured in turn with it, and the
ratio of their batches is printed. Everything is removed at the end.
"""

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

import torch

from knnmt.datastore import Datastore
from knnmt.lab.bench.growth import Growth, grown
from knnmt.lab.bench.synthetic import Shape, make
from knnmt.store.manifest import MANIFEST, manifest_bytes, read_manifest

SYSTEMS = ("similar", "faster")


def repeated(store: Path, others: list[Path], parts: int, out: Path) -> Datastore:
    """A store of so many parts, which are those of these stores again and again."""
    each = [read_manifest(path) for path in (store, *others)]
    made, manifest = [], each[0]
    out.mkdir()
    for number in range(parts):
        own, folder = each[number % len(each)].parts[0], (store, *others)[number % len(each)]
        name = f"{own.name[:-4]}{number:04x}"
        (out / name).symlink_to((folder / own.name).absolute(), target_is_directory=True)
        made.append(own.model_copy(update={"name": name}))
    (out / MANIFEST).write_bytes(manifest_bytes(manifest.model_copy(update={"parts": made})))
    return Datastore.open(out)


def measured(shape: Shape, path: Path, system: str) -> Growth:
    """Measure a system on a store of parts of this shape, and print a line."""
    began = time.perf_counter()
    store = Datastore.open(path)
    opening = time.perf_counter() - began
    row = grown(shape, store, system, 16, None, torch.device("cpu"))
    print(
        f"{row.system:>8} {row.tokens:>13,} opened in {opening:.2f} s, first batch {row.opening:6.2f} s, "
        f"select {1000 * row.select.median:7.1f} ms ({1000 * row.unmet:.1f} ms the first time), "
        f"lookup {1000 * row.lookup.median:5.2f} ms, "
        f"batch {1000 * row.batch:7.1f} ms; arrays {row.opened / 1e9:6.2f} GB, "
        f"held {(row.memory.held or 0) / 1e6:6.0f} MB, further {(row.working.held or 0) / 1e6:5.0f} MB",
        flush=True,
    )
    return row


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tokens", type=float, help="of a part; 1e7 or more")
    parser.add_argument("--parts", type=int, nargs="+", default=[1, 100])
    parser.add_argument("--distinct", type=int, default=10)
    parser.add_argument("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    parser.add_argument("--beside", type=float, default=None, help="tokens of a store to compare with")
    parser.add_argument("--rounds", type=int, default=1, help="in turn")
    parser.add_argument("--folder", type=Path, default=None, help="where there is room")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        given = {"similar": "similar" in arguments.systems, "parts": max(arguments.parts)}
        shapes = [Shape(int(arguments.tokens), seed=seed + 1, **given) for seed in range(arguments.distinct)]
        stores = []
        for shape in shapes:
            began = time.perf_counter()
            stores.append(make(shape, folder / f"store-{shape.seed}").path)
        print(f"made {len(stores)} parts; the last in {time.perf_counter() - began:.0f} s", flush=True)
        small = Shape(int(arguments.beside or shapes[0].tokens), similar=given["similar"])
        if arguments.beside is not None:
            make(small, folder / "beside")
        for count in arguments.parts:
            path = repeated(stores[0], stores[1:], count, folder / f"of {count}").path
            for system in arguments.systems:
                ratios = []
                for _ in range(arguments.rounds):
                    few = None if arguments.beside is None else measured(small, folder / "beside", system)
                    many = measured(shapes[0], path, system)
                    ratios.append(many.batch / few.batch if few is not None else 1.0)
                if arguments.beside is not None:
                    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
                    print(
                        f"{system:>8} in {count} parts: {statistics.median(ratios):.2f} times as long ({each})",
                        flush=True,
                    )
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
