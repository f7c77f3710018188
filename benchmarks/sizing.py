"""What a server needs: requests a second by cores, memory for each pair and memory, disk for each segment.

    python benchmarks/sizing.py --texts test.de --store store/

Each figure is that of a server of its own, started with the embedded models. Requests are of one text of at most 40
characters each, from one client or from several at once: what waits is translated in one batch. Clients share the cores
with the server. The store is only read.
"""

import argparse
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from load import Work, configuration, drive, memory, metric, server, works_of

CORES = (1, 2)
CLIENTS = (1, 16, 64)
ENDLESS = 1 << 40  # requests


def measured(works: list[Work], cores: int, clients: int, seconds: float, *options: str) -> dict[str, float]:
    """Requests a second, texts of a batch, and the memory of the server afterwards, in MiB: all of it, and what is not
    a mapped file."""
    usual = os.sched_getaffinity(0)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(configuration(works, *options))
        file.flush()
        os.sched_setaffinity(0, sorted(usual)[:cores])  # for the server, and for the clients
        try:
            with server(["--config", file.name, "--threads", str(cores)]) as (port, pid):
                drive(port, works, clients, seconds / 5, pid, ENDLESS)  # models are loaded, throughput is known
                before = batches(port)
                load = drive(port, works, clients, seconds, pid, ENDLESS)
                count, texts = (after - earlier for after, earlier in zip(batches(port), before, strict=True))
                resident, own = (round(memory(pid, kind)) for kind in ("VmRSS", "RssAnon"))
        finally:
            os.sched_setaffinity(0, usual)
    if load.faults:
        raise SystemExit(f"faults: {load.faults}")
    rate = sum(load.codes.values()) / load.elapsed
    return {"requests_per_second": round(rate, 1), "batch": round(texts / count, 1), "mib": resident, "own_mib": own}


def batches(port: int) -> tuple[float, float]:
    """How many batches a server has translated, and their texts."""
    return metric(port, "knnmt_batch_segments_count"), metric(port, "knnmt_batch_segments_sum")


def main() -> None:
    """Measure and report."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=Path, action="append", required=True, help="source texts, one a line")
    parser.add_argument("--store", action="append", default=[], help="a store of their languages")
    parser.add_argument("--count", type=int, default=512, help="texts that are used")
    parser.add_argument("--seconds", type=float, default=10, help="of each measurement")
    parser.set_defaults(model="mini", langs="de-en")
    given = parser.parse_args()
    (work,) = works_of(given)
    alone, other = Work(work.texts), Work(["The dog sleeps in the garden."], "en", "de")
    report: dict[str, Any] = {"one pair": {}}
    for precision in ("float32", "int8"):
        for cores in CORES:
            for clients in CLIENTS:
                found = measured([alone], cores, clients, given.seconds, f'precision = "{precision}"')
                report["one pair"][f"{precision}, {cores} core(s), {clients} client(s)"] = found
    report["two pairs"] = measured([alone, other], max(CORES), CLIENTS[1], given.seconds)
    report["one pair with the store"] = measured([work], max(CORES), CLIENTS[1], given.seconds)
    for store in map(Path, given.store):
        manifest = json.loads((store / "manifest.json").read_text(encoding="utf-8"))["knnmt"]
        segments = sum(part["sizes"]["segments"] for part in manifest["parts"])
        size = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())
        report[str(store)] = {"segments": segments, "mib": size >> 20, "bytes_per_segment": round(size / segments)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
