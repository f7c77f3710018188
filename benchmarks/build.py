"""Watch the memory and the disk that `knnmt build` takes, stage by stage, for half of a corpus and for all of it.

    python benchmarks/build.py train --langs de-en

The build runs in a process of its own, whose anonymous memory (RssAnon: what is its own, without the pages of mapped
files, which the kernel takes back when it needs them) is read every 50 ms. The stores are made in a temporary folder,
where there must be room for both. Linux only.
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from knnmt.corpus import Languages, files_of
from knnmt.store.manifest import work_folder

STAGES = (
    "read", "align", "link", "join", "count", "cut", "represent", "scale", "project", "cluster", "prototypes",
    "similar", "keys", "index", "seal",
)  # fmt: skip
INTERVAL = 0.05  # seconds between looks
BUILD = "import sys; from knnmt.cli import main; sys.exit(main())"


def anonymous(process: int) -> int:
    """Return the bytes of a process's own memory; none once it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)


def running(work: Path) -> int:
    """The place of the stage that is running: the one after the last that was done, of whichever part."""
    try:
        done = max(work.glob("*.done"), key=lambda path: path.stat().st_mtime_ns, default=None)
    except OSError:  # it was just removed
        return len(STAGES) + 1
    return 0 if done is None else 2 + STAGES.index(done.name.split(".")[1])


def on_disk(work: Path) -> int:
    """The bytes of all files of a work folder."""
    size = 0
    for path in work.rglob("*"):
        with contextlib.suppress(OSError):  # it was just removed
            size += path.stat().st_size if path.is_file() else 0
    return size


def watch(corpus: Path, langs: str, out: Path, more: list[str]) -> dict[str, tuple[int, int]]:
    """Build a store; return the most bytes of memory and disk before the stages, in each, and after them."""
    command = [sys.executable, "-c", BUILD, "build", str(corpus), "--langs", langs, "--out", str(out), *more]
    work, names = work_folder(out), ("start", *STAGES, "publish")
    peaks = dict.fromkeys(names, (0, 0))
    with subprocess.Popen(command) as build:
        while build.poll() is None:
            now = names[running(work)]
            held, disk = peaks[now]
            peaks[now] = max(held, anonymous(build.pid)), max(disk, on_disk(work))
            time.sleep(INTERVAL)
    if build.returncode:
        raise SystemExit(f"the build of {corpus} failed")
    return peaks


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("corpus", type=Path, help="a pair of files, named without their languages")
    parser.add_argument("--langs", required=True, help="such as de-en")
    arguments, more = parser.parse_known_args()
    files = files_of(arguments.corpus, Languages.parse(arguments.langs))
    with tempfile.TemporaryDirectory() as folder:
        half = Path(folder) / "half"
        for file in files:
            with file.open("rb") as whole:
                count = sum(1 for _ in whole)
                whole.seek(0)
                half.with_name(f"half{file.suffix}").write_bytes(b"".join(islice(whole, count // 2)))
        peaks = [
            watch(corpus, arguments.langs, Path(folder) / f"store of {name}", more)
            for name, corpus in (("half", half), ("all", arguments.corpus))
        ]
    print(f"{'MB':>12} {'memory: half':>14} {'whole':>7} {'disk: half':>12} {'whole':>7}")
    for peak in peaks:
        peak["peak"] = max(held for held, _ in peak.values()), max(disk for _, disk in peak.values())
    for stage in peaks[0]:
        figures = [peak[stage][kind] / 1e6 for kind in (0, 1) for peak in peaks]
        print(f"{stage:>12} {figures[0]:14,.0f} {figures[1]:7,.0f} {figures[2]:12,.0f} {figures[3]:7,.0f}")


if __name__ == "__main__":
    main()
