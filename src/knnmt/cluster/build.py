"""The pieces of a build on a Ray cluster: each actor has a model, and makes one piece at a time.

What a worker that died has left in the work folder is resumed by the next one. A lock keeps two of them apart, should
one that was given up for dead still be at work. This process reads, fits the aligner, joins and publishes.
"""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch

from knnmt import host
from knnmt.allocator import hold_little
from knnmt.build.pieces import Piece
from knnmt.build.plan import Work
from knnmt.build.settings import BuildSettings
from knnmt.cluster.connection import Cluster, ClusterSettings, connected, require_version
from knnmt.errors import StoreError, UsageError
from knnmt.model.checkpoint import load

_log = logging.getLogger(__name__)

LOCKED = 180.0  # seconds that a lock may outlive a machine that died, on a network's file system


class BuildWorker:
    """An actor that makes pieces of a build."""

    def __init__(self, version: str, device: str, precision: str, model: str, langs: str, threads: int) -> None:
        require_version(version)
        torch.set_num_threads(threads)
        hold_little()
        self.model = load(model, device=device, precision=precision, langs=langs)
        self.threads = threads

    def describe(self) -> tuple[str, str, str]:
        """What the result depends on: the model's fingerprint, its type of device, and its precision."""
        return self.model.fingerprint, self.model.device.type, self.model.transformer.precision

    def process(self) -> int:
        """The number of its process."""
        return os.getpid()

    def make(self, folder: Path, settings: BuildSettings, piece: Piece) -> dict[str, float]:
        """Make a piece; gives the seconds of its stages."""
        if not (folder / "plan").exists():
            raise UsageError(f"{socket.gethostname()} does not see {folder}: build in a folder that all machines share")
        work = Work(folder, self.model, settings, self.threads)
        with host.lock(folder / f"{piece.folder}.lock", LOCKED) as lock:
            if lock is None:
                raise StoreError(f"another worker is still running in {folder / piece.folder}: run the command again")
            piece.run(work)
        return work.seconds


class RayRunner:
    """Runs pieces on the actors of a cluster."""

    def __init__(self, cluster: Cluster, model: str, langs: str, fingerprint: str) -> None:
        self.cluster = cluster
        self.actors = cluster.start(BuildWorker, model, langs, cluster.settings.threads)
        found, self.device, self.precision = cluster.get(self.actors[0].describe.remote())
        if found != fingerprint:
            raise UsageError(
                f"{model} is another model on the workers than here: name a folder that all machines share"
            )

    def run(self, work: Work, pieces: Sequence[Piece]) -> None:
        """Run all pieces, those of one folder on the same actor where it is free: its machine has the files cached."""
        ray, todo, idle = self.cluster.ray, list(pieces), list(self.actors)
        running: dict[Any, tuple[Any, Piece]] = {}
        made: set[str] = set()
        places: dict[str, Any] = {}
        total = len({piece.folder for piece in pieces})
        if total < len(self.actors):
            _log.warning(
                "%d workers for %d parts: smaller parts (--part-tokens) keep all busy", len(self.actors), total
            )
        if work.progress is not None:
            work.progress("pieces", 0, len(pieces))
        while todo or running:
            for piece in [piece for piece in todo if made.issuperset(piece.needs)][: len(idle)]:
                before = [actor for actor in idle if actor is places.get(piece.folder)]
                actor: Any = (before or idle)[0]
                idle.remove(actor)
                todo.remove(piece)
                places[piece.folder] = actor
                running[actor.make.remote(work.folder.absolute(), work.settings, piece)] = actor, piece
            for reference in ray.wait(list(running))[0]:
                actor, piece = running.pop(reference)
                for stage, seconds in self.cluster.get(reference).items():
                    work.seconds[stage] = work.seconds.get(stage, 0.0) + seconds
                idle.append(actor)
                made.add(piece.name)
                if work.progress is not None:
                    work.progress("pieces", 1, len(pieces))


@contextlib.contextmanager
def ray_runner(settings: ClusterSettings, model: str, langs: str, fingerprint: str) -> Iterator[RayRunner]:
    """A runner on a cluster, for builds with a model of this fingerprint; the actors end with the context."""
    with connected(settings) as cluster:
        yield RayRunner(cluster, model, langs, fingerprint)
