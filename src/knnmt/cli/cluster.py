"""Options of commands that can run on a Ray cluster."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from knnmt.errors import UsageError

if TYPE_CHECKING:
    from knnmt.cluster.connection import ClusterSettings

RayOption = Annotated[
    str | None,
    typer.Option("--ray", metavar="<address>", help="Run on Ray: local (this machine), auto, or host:port."),
]
RayWorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Number of Ray workers. [default: one per GPU, or per core]")
]


def cluster_settings(
    address: str | None, workers: int | None, threads: int | None, device: str, precision: str
) -> "ClusterSettings | None":
    """What a command says of a cluster; None where it is to run in this process."""
    if address is None:
        if workers is not None:
            raise UsageError("--ray-workers needs --ray")
        return None
    from knnmt.cluster.connection import ClusterSettings
    from knnmt.optional import require

    require("ray", extra="ray")  # before anything is loaded
    return ClusterSettings(address, workers, threads or 1, device, precision)


def seen_by_all(model: str) -> str:
    """The name of a model as workers take it: a folder by its whole path."""
    return str(Path(model).absolute()) if Path(model).is_dir() else model
