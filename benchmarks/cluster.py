"""Compare `knnmt build --ray local` with the plain build: the same bytes, and how long each takes.

    python benchmarks/cluster.py corpus.tsv --langs de-en --threads 2 --ray 1 2 4 --part-tokens 100000

Wall-clock seconds of the whole command, with the start of Ray and the loading of models. Options that are not known
here go to `knnmt build`. Stores are made in a temporary folder, or where `--folder` says, and removed. For a comparison
on one core, run it with `taskset -c 0`. Ends with an error if the stores differ.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from knnmt.files import digest

BUILD = "import sys; from knnmt.cli import main; sys.exit(main())"
SHOWN = 5  # files that differ


def built(options: list[str], out: Path) -> float:
    """Build a store; gives the seconds it took."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", BUILD, "build", *options, "--out", str(out)], check=True)
    return time.perf_counter() - began


def content(store: Path) -> dict[str, str]:
    """The digest of each file of a store; then it is removed, so that the disk holds one at a time."""
    found = {str(path.relative_to(store)): digest(path.read_bytes()) for path in store.rglob("*") if path.is_file()}
    shutil.rmtree(store)
    return found


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", nargs="+")
    parser.add_argument("--threads", type=int, nargs="*", default=[2], help="of plain builds")
    parser.add_argument("--ray", type=int, nargs="*", default=[1, 2, 4], help="workers of builds on Ray")
    parser.add_argument("--folder", type=Path, default=None, help="where there is room")
    arguments, more = parser.parse_known_args()
    runs = [(f"plain, {count} threads", ["--workers", str(count)]) for count in arguments.threads]
    runs += [(f"Ray, {count} workers", ["--ray", "local", "--ray-workers", str(count)]) for count in arguments.ray]
    first: dict[str, str] = {}
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        for name, options in runs:
            out = Path(folder) / "store"
            seconds = built([*arguments.corpus, *options, *more], out)
            found = content(out)
            first = first or found
            changed = sorted(path for path in first.keys() | found.keys() if first.get(path) != found.get(path))
            whole = digest(repr(sorted(found.items())).encode())
            print(f"{name}: {seconds:.1f} s, {len(found)} files with digest {whole}", flush=True)
            if changed:
                some = ", ".join(changed[:SHOWN])
                raise SystemExit(f"{len(changed)} files differ from those of the first build, among them {some}")


if __name__ == "__main__":
    main()
