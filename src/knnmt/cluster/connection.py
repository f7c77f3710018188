"""A connection to a Ray cluster, or a cluster of this machine alone, and the actors that are started on it."""

import contextlib
import logging
import os
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from knnmt import __version__, host
from knnmt.errors import KnnmtError, UsageError
from knnmt.optional import require

LOCAL = "local"  # the address of a cluster of this machine alone
OBJECTS = 100 << 20  # bytes of its object store: only texts and figures pass through it
PATIENCE = 5.0  # seconds to wait for a cluster to answer
RETRIES = 20  # times that a piece of work is begun again after its worker died


@dataclass(frozen=True)
class ClusterSettings:
    """Where to run, and on how many actors: one per GPU, or per core where there are none, unless `workers` says so.

    `threads` are those of each actor; device and precision are those of its model, as `knnmt.model.load` takes them.
    """

    address: str = LOCAL
    workers: int | None = None
    threads: int = 1
    device: str = "auto"
    precision: str = "auto"


class Cluster:
    """A cluster that this process is connected to, until the context that `connected` opened ends."""

    def __init__(self, ray: Any, settings: ClusterSettings) -> None:
        self.ray, self.settings = ray, settings
        resources = ray.cluster_resources()
        cores, gpus = int(resources.get("CPU", 0)), int(resources.get("GPU", 0))
        self.gpu = settings.device.startswith("cuda") or (settings.device == "auto" and gpus > 0)
        room = min(gpus, cores // settings.threads) if self.gpu else cores // settings.threads
        self.workers = settings.workers or room
        if not 0 < self.workers <= room:
            asked = f"{settings.workers or 'at least 1'} workers of {settings.threads} threads"
            raise UsageError(
                f"the Ray cluster has {cores} cores and {gpus} GPUs, too few for {asked}"
                f"{' with a GPU each' if self.gpu else ''}: use fewer (--ray-workers, --workers, --device)"
            )

    def start(self, kind: type, *arguments: Any) -> list[Any]:
        """Start actors of a class whose constructor takes our version, a device and a precision, and these."""
        device = ("cuda" if self.gpu else "cpu"), self.settings.precision
        options = {
            "num_cpus": self.settings.threads, "num_gpus": int(self.gpu), "max_restarts": -1,
            "max_task_retries": RETRIES,
        }  # fmt: skip
        actor = self.ray.remote(**options)(kind)
        return [actor.remote(__version__, *device, *arguments) for _ in range(self.workers)]

    def get(self, reference: Any) -> Any:
        """A result; an error of our own is raised as it was on the actor."""
        errors = self.ray.exceptions
        try:
            return self.ray.get(reference)
        except errors.RayTaskError as error:
            if isinstance(error.cause, KnnmtError | OSError):
                raise error.cause from None
            raise
        except errors.RayActorError as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            raise KnnmtError(f"a Ray worker failed: {lines[-1].strip()}") from error


@contextlib.contextmanager
def connected(settings: ClusterSettings) -> Iterator[Cluster]:
    """Connect to a cluster, or start one on this machine, which ends when the context does."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is reported to anybody
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # actors without a GPU leave the variables alone
    ray = require("ray", extra="ray")
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
    if settings.address == LOCAL:
        os.environ.setdefault("RAY_worker_niceness", "0")  # as this process itself would run
        options["num_cpus"] = max(host.cores(), (settings.workers or 1) * settings.threads)
        options |= {"include_dashboard": False, "object_store_memory": OBJECTS}
    else:
        _require_listening(settings.address)
    try:
        ray.init(address=settings.address, **options)
    except (ConnectionError, RuntimeError, ValueError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"cannot connect to Ray at {settings.address}: {reason}") from error
    try:
        yield Cluster(ray, settings)
    finally:
        ray.shutdown()


def require_version(version: str) -> None:
    """Refuse, on an actor, to work for another version of knnmt."""
    if version != __version__:
        raise UsageError(
            f"{socket.gethostname()} has knnmt {__version__}, but the command runs {version}: "
            "install the same version on all machines of the cluster"
        )


def _require_listening(address: str) -> None:
    """Refuse an address where nothing listens: Ray itself would wait for minutes."""
    name, _, port = address.rpartition(":")
    if "://" in address:
        raise UsageError(f"cannot connect to Ray at {address}: give host:port, and run on a machine of the cluster")
    if address != "auto" and not (name and port.isdigit()):
        raise UsageError(f"--ray takes host:port, auto or local, not {address!r}")
    if address != "auto":
        try:
            socket.create_connection((name, int(port)), PATIENCE).close()
        except OSError as error:
            raise UsageError(f"cannot connect to Ray at {address}: {error.strerror or error}") from error
