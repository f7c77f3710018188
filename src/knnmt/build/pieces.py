"""Where the pieces of a build run: here, one after the other, or on the machines of a cluster.

A piece works in one folder inside the work folder, which all machines see. It may run again: stages that are done are
not done twice, and the result depends on neither the machine nor the number of workers.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from knnmt.build.plan import Work
from knnmt.model.represent import StateModel


@dataclass(frozen=True)
class Piece:
    """`folder` is where it works, one process at a time; `needs` are the names of pieces that must be done before."""

    name: str
    folder: str
    run: Callable[[Work], None]
    needs: tuple[str, ...] = ()


class Runner(Protocol):
    """Runs pieces, which are listed after those that they need.

    `device` is the type of device that its models compute on, and `precision` theirs: the result depends on both.
    """

    device: str
    precision: str

    def run(self, work: Work, pieces: Sequence[Piece]) -> None:
        """Run all pieces; adds the time of their stages to that of the work."""
        ...


class Here:
    """Runs pieces in this process, in their order; each uses all threads of the work."""

    def __init__(self, model: StateModel) -> None:
        self.device, self.precision = model.device.type, model.transformer.precision

    def run(self, work: Work, pieces: Sequence[Piece]) -> None:
        """Run all pieces."""
        for piece in pieces:
            piece.run(work)
