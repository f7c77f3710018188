"""All experiments of docs/paper.md on one GPU, the most important first, many side by side, in a given time.

    python benchmarks/paper_data.py DATA PREPARED                                # once, where numba is
    python benchmarks/paper_gpu.py PREPARED OUT --base BASE_MODEL --seconds 600  # where the GPU is
    python benchmarks/paper_join.py OUT docs/results/paper

OUT/json gets a file for each run as soon as it has scores, OUT/bench the times, OUT/logs what each run said,
OUT/progress.txt what is running, and OUT/begun.txt the order in which runs began. With `--have FOLDER` a run whose
domains the results there have is left out, but for those of systems that are asked for by name. Runs of the larger
model wait until its folder is there.

Times are measured alone on the machine: all other runs are stopped meanwhile (SIGSTOP) and go on after it. Nothing is
killed before the time is over, since under MPS the death of one client can take others with it.
"""

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

DOMAINS = ("koran", "subtitles", "bible", "it")
LONGEST_FIRST = ("it", "bible", "koran", "subtitles")
SIZES = ("10000", "3000", "1000", "300", "100")
MINI = "mini-de-en"
STORE = "speed-store"  # the job that builds what times are measured with
LAST = 12  # seconds before the end in which nothing more is begun
FIRST = 10  # the rank below which jobs come before times


@dataclass
class Job:
    """A command with a name. Those of the lowest rank run first."""

    rank: int
    name: str
    command: list[str]
    wants: Path | None = None  # what it needs
    place: Path | None = None  # of its results
    domain: str = ""
    seconds: int = 0  # that it is expected to take, if it is timed
    process: "subprocess.Popen[bytes] | None" = None
    began: float = 0.0
    tries: int = 0


@dataclass
class Window:
    """What is asked for, and the time that is left."""

    prepared: Path
    out: Path
    base: Path | None
    arguments: argparse.Namespace
    began: float = field(default_factory=time.monotonic)

    @property
    def spent(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self.began

    @property
    def left(self) -> float:
        """Seconds to the end."""
        return float(self.arguments.seconds) - self.spent

    def knnmt(self, *arguments: str) -> list[str]:
        """A command of knnmt."""
        return [*self.arguments.knnmt.split(), *arguments]

    def reproduce(
        self, rank: int, experiment: str, domain: str, model: Path | None, *options: str, part: str = ""
    ) -> Job:
        """A run of one domain or variant; without a model, by the embedded one."""
        named = MINI if model is None else model.name
        name = "-".join(filter(None, (experiment, named, domain, part)))
        place = self.out / "runs" / name
        command = self.knnmt(
            "reproduce", f"{self.arguments.configs}/{experiment}.toml", "--data", str(self.prepared),
            "--out", str(place), "--only", domain, "--model", MINI if model is None else str(model), "--no-report",
            "--jobs", "2", "--threads", str(self.arguments.threads), "--device", self.arguments.device, "--precision",
            "float32", *options,
        )  # fmt: skip
        return Job(rank, name, command, None if model is None else model / "config.json", place, domain)


# ------------------------------------------------------------------------------------------------------- what runs


def quality(window: Window) -> Iterator[Job]:
    """All runs that give scores."""
    both: list[Path | None] = [None, *([window.base] if window.base is not None else [])]
    for place, model in enumerate(both):
        for domain in LONGEST_FIRST:  # the default beside what it is compared with
            named = ("--systems", "similar,similar-learned,knn,faster", "--no-vary")
            yield window.reproduce(place, "quick", domain, model, *named, part="similar")
    yield Job(
        2, STORE,
        window.knnmt(
            "build", str(window.prepared / "koran" / "train"), "--langs", "de-en", "--out",
            str(window.out / "runs" / STORE), "--model", MINI, "--alignments",
            str(window.prepared / "koran" / "train.links"), "--k-max", "512", "--device", window.arguments.device,
            "--precision", "float32",
        ),
    )  # fmt: skip
    for model in both:
        for place, variant in enumerate(("cosine", "knn", "m512", "m2048")):
            for domain in LONGEST_FIRST:
                yield window.reproduce(12 + place, "published", f"{domain}-{variant}", model)
    for size in SIZES:
        for domain in DOMAINS:
            yield window.reproduce(20, "sizes", f"{domain}-{size}", None)
    for model in both:
        for variant in ("exact", "output", "cleaned"):
            for domain in DOMAINS:
                yield window.reproduce(25, "published", f"{domain}-{variant}", model)
    for size in ("m32", "m2048", "m128", "m8"):
        for domain in DOMAINS:
            yield window.reproduce(40, "clusters", f"{domain}-{size}", None)
    for domain, sizes in (("koran", ("50mb", "107mb")), ("bible", ("100mb", "215mb"))):
        for variant in (*sizes, "m4", "m64"):
            yield window.reproduce(45, "curve", f"{domain}-{variant}", None)
    for place, model in enumerate(both):
        for domain in LONGEST_FIRST:  # all systems, with what is varied
            yield window.reproduce((16 if window.arguments.again else 50) + place, "quick", domain, model)


def speed(window: Window) -> list[Job]:
    """Everything that is timed, alone on the machine."""
    store, text = window.out / "runs" / STORE, window.prepared / "koran" / "test.de"
    steps = "base,fast,fast-clustered,faster-exact,faster"
    every = f"{steps},similar,knn"
    some = ["--pairs", "4", "--segments", "128", "--batch-size", "64", "--sweep"]
    asked: dict[str, tuple[int, list[str]]] = {
        "memory": (40, ["--systems", every, "--memory", str(window.arguments.memory)]),
        "batch": (60, ["--systems", "base,fast,faster,similar", "--pairs", "2", "--segments", "64", "--sweep",
                       "batch-size=1,4,16,64"]),
        "systems": (40, ["--systems", every, "--pairs", "10", "--segments", "192", "--batch-size", "64"]),
        "k": (40, ["--systems", steps, *some, "k=8,32,128,512"]),
        "length": (40, ["--systems", steps, *some, "length=10,30,60,120"]),
        "c": (25, ["--systems", "base,fast", *some, "c=16,64,256,512"]),
    }  # fmt: skip
    return [
        Job(0, f"gpu-{name}", window.knnmt(
            "bench", str(text), "--store", str(store), "--model", MINI, "--no-first-pass", "-c", "64", "--device",
            window.arguments.device, *options, "--output", str(window.out / "bench" / f"gpu-{name}.json"),
        ), wants=store / "manifest.json", seconds=seconds)
        for name, (seconds, options) in asked.items()
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------------------- the clock


class Runner:
    """Begins jobs in order, as many at a time as there is room for, and keeps what they make."""

    def __init__(self, window: Window, jobs: Sequence[Job], timed: Sequence[Job]) -> None:
        self.window, self.waiting, self.timed = window, sorted(jobs, key=lambda job: job.rank), list(timed)
        self.running: list[Job] = []
        self.ended: dict[str, str] = {}

    def run(self) -> None:
        """Until all is done, or the time is over."""
        while (self.waiting or self.running or self.timed) and self.window.left > 0:
            self._reap()
            if self._time_for_speed():
                self._speed()
            self._begin()
            self._tell()
            begun = self.running or any(map(self._ready, (*self.waiting, *self.timed)))
            if not begun and (not self.waiting or self.window.left < LAST):
                break
            time.sleep(0.3)
        self._end()

    def _ready(self, job: Job) -> bool:
        return job.wants is None or job.wants.exists()

    def _begin(self) -> None:
        while len(self.running) < self.window.arguments.parallel and self.window.left > LAST:
            job = next(filter(self._ready, self.waiting), None)
            if job is None:
                return
            self.waiting.remove(job)
            self._start(job)
            self.running.append(job)

    def _start(self, job: Job) -> None:
        if job.place is not None:
            with contextlib.suppress(FileNotFoundError):  # what an earlier try left half done
                shutil.rmtree(job.place)
            matches = self.window.prepared / "matches" / f"{job.domain}.json"
            if matches.exists():
                (job.place / job.domain).mkdir(parents=True)
                shutil.copyfile(matches, job.place / job.domain / "matches.json")
        job.began, job.tries = self.window.spent, job.tries + 1
        with (self.window.out / "logs" / f"{job.name}.log").open("ab") as log:
            log.write(f"$ {' '.join(job.command)}\n".encode())
            log.flush()
            job.process = subprocess.Popen(job.command, stdout=log, stderr=log, start_new_session=True)
        with (self.window.out / "begun.txt").open("a") as begun:
            begun.write(f"{job.began:.0f} s: {job.name}\n")

    def _reap(self) -> None:
        """Keep the results of all, and see which have ended."""
        for job in list(self.running):
            assert job.process is not None
            code = job.process.poll()
            self._keep(job)
            if code is None:
                continue
            self.running.remove(job)
            self.ended[job.name] = (
                f"exit {code} after {self.window.spent - job.began:.0f} s, at {self.window.spent:.0f} s"
            )
            with (self.window.out / "logs" / f"{job.name}.log").open("a") as log:
                log.write(self.ended[job.name] + "\n")
            if job.place is not None:
                for store in job.place.glob("*/store*"):  # only the figures are wanted
                    shutil.rmtree(store, ignore_errors=True)
            if code and job.tries < 2:  # for want of memory, say
                job.rank = 35
                self.waiting = sorted((*self.waiting, job), key=lambda one: one.rank)

    def _keep(self, job: Job) -> None:
        if job.place is None or not (job.place / "results.json").exists():
            return
        made, kept = job.place / "results.json", self.window.out / "json" / f"{job.name}.json"
        if not kept.exists() or kept.stat().st_mtime_ns < made.stat().st_mtime_ns:
            shutil.copyfile(made, kept.with_suffix(".part"))
            kept.with_suffix(".part").replace(kept)

    def _time_for_speed(self) -> bool:
        """As soon as what matters more is done, or no later than the time that is left allows."""
        if not self.timed or not self._ready(self.timed[0]) or any(job.name == STORE for job in self.running):
            return False
        before = [job for job in (*self.waiting, *self.running) if job.rank < FIRST]
        return (
            not before
            or self.window.left < min(self.window.arguments.timing, sum(job.seconds for job in self.timed)) + LAST
        )

    def _speed(self) -> None:
        """All that is timed, while everything else stands still."""
        self._signal(signal.SIGSTOP)
        began = self.window.spent
        try:
            time.sleep(1.0)  # what was begun on the GPU ends
            while self.timed:
                job = self.timed.pop(0)
                if self.window.left < job.seconds / 2 or self.window.spent - began > self.window.arguments.timing:
                    continue
                self._start(job)
                assert job.process is not None
                while job.process.poll() is None and self.window.left > 0:
                    self._tell(f"timing {job.name}")
                    time.sleep(0.3)
                    if self.window.spent - job.began > 2 * job.seconds:
                        os.killpg(job.process.pid, signal.SIGINT)  # the others wait
                self.ended[job.name] = f"exit {job.process.poll()} after {self.window.spent - job.began:.0f} s"
                if job.process.poll() is None:
                    self.running.append(job)
        finally:
            self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        for job in self.running:
            assert job.process is not None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(job.process.pid, which)

    def _tell(self, now: str = "") -> None:
        wrong = [f"{name}: {how}" for name, how in self.ended.items() if not how.startswith("exit 0")]
        lines = [
            f"{self.window.spent:.0f} s, {self.window.left:.0f} left; {len(self.ended)} ended, {len(self.waiting)} "
            f"waiting, {len(self.timed)} to be timed {now}",
            "running: " + ", ".join(f"{job.name} ({self.window.spent - job.began:.0f} s)" for job in self.running),
            *(f"FAILED {line}" for line in wrong),
        ]  # fmt: skip
        (self.window.out / "progress.txt").write_text("\n".join(lines) + "\n")

    def _end(self) -> None:
        """Interrupt what is still running, all at once; what it had found is kept."""
        self._signal(signal.SIGINT)
        ends = time.monotonic() + 15
        while self.running and time.monotonic() < ends:
            self._reap()
            time.sleep(0.3)
        self._tell("the end")
        (self.window.out / "ended.json").write_text(json.dumps(self.ended, indent=1) + "\n")


def had(folder: Path | None, job: Job, again: tuple[str, ...]) -> bool:
    """Whether results have the domain of a job already; some are wanted again, and what is asked for by system."""
    if folder is None or job.place is None or "--systems" in job.command or job.name.startswith(again):
        return False
    path = folder / f"{job.name.removesuffix(f'-{job.domain}')}.json"
    known = json.loads(path.read_text(encoding="utf-8"))["domains"] if path.exists() else []
    return any(one["name"] == job.domain for one in known)


def wanted(job: Job, domains: Sequence[str]) -> bool:
    """Whether a job is of one of the domains, or of none."""
    return not job.domain or job.domain.split("-")[0] in domains


def main(arguments: Sequence[str]) -> None:
    """Run everything that fits."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("prepared", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--base", type=Path, help="folder of the larger model; may come later")
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--have", type=Path, help="folder of results that need not be made again")
    parser.add_argument("--domains", default=",".join(DOMAINS), help="only these")
    parser.add_argument("--parallel", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2, help="of each run on the CPU")
    parser.add_argument("--timing", type=int, default=300, help="seconds after which nothing more is timed")
    parser.add_argument("--again", action="store_true", help="all of quick.toml again, whatever is had")
    parser.add_argument("--memory", type=int, default=4096, help="MiB of the largest batch")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--configs", type=Path, default=Path(__file__).resolve().parent.parent / "configs")
    parser.add_argument("--knnmt", default="knnmt", help="the command")
    given = parser.parse_args(arguments)
    for name in ("json", "bench", "logs", "runs"):
        (given.out / name).mkdir(parents=True, exist_ok=True)
    window = Window(given.prepared.resolve(), given.out.resolve(), given.base, given)
    once: dict[str, Job] = {}
    for job in quality(window):
        once.setdefault(job.name, job)
    again = ("sizes", "quick") if given.again else ("sizes",)
    asked = [job for job in once.values() if not had(given.have, job, again) and wanted(job, given.domains.split(","))]
    Runner(window, asked, speed(window)).run()


if __name__ == "__main__":
    main(sys.argv[1:])
