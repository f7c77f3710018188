"""What a stage works with: the folder of a part in the making, what all parts share, and the settings of the build."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from knnmt.align.bitext import Bitext
from knnmt.build.lloyd import States
from knnmt.build.settings import BuildSettings
from knnmt.model.represent import StateModel
from knnmt.store import arrays

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, the work done since the last call, and the total where that is known."""


@dataclass(frozen=True)
class Context:
    """A part, or the whole corpus, in the making. Stages read and write arrays by name.

    Everything is made in `folder`; when a part is sealed, arrays that no system opens are removed. `shared` holds what
    the parts of a store have in common, such as the projections of `similar`, which are found from the first part.
    """

    model: StateModel
    settings: BuildSettings
    folder: Path
    shared: Path
    workers: int = 1
    progress: Progress | None = None
    label: str = ""  # which part of several, for progress
    lessons: frozenset[int] = frozenset()  # segments that are searched exactly, and are in no prototype

    @property
    def vocabulary(self) -> int:
        """The number of source types."""
        return self.model.transformer.architecture.source_vocabulary

    @property
    def width(self) -> int:
        """The numbers of a state."""
        return self.model.transformer.architecture.width

    @property
    def unit(self) -> bool:
        """Whether states are stored at length 1."""
        return self.settings.metric == "cosine"

    @property
    def batch_tokens(self) -> int:
        """Tokens of one batch of the model: as many as suit its device."""
        return self.settings.batch_tokens or batch_tokens(self.model.device.type)

    def watch(self, stage: str, total: int | None = None) -> Callable[[int], None]:
        """A function that a stage calls with the work it has done."""
        name = f"{stage} {self.label}".rstrip()

        def advance(done: int) -> None:
            if self.progress is not None:
                self.progress(name, done, total)

        advance(0)
        return advance

    def path(self, name: str) -> Path:
        """The file of an array."""
        return self.folder / f"{name}.npy"

    def __contains__(self, name: str) -> bool:
        return self.path(name).exists()

    def __getitem__(self, name: str) -> NDArray[Any]:
        return arrays.read(self.path(name))

    def states(self, name: str) -> States:
        """An array of states (N, d) float16: on the model's GPU, if it takes at most half of the memory free there."""
        states, device = self[name], self.model.device
        if device.type == "cpu" or 2 * states.nbytes > torch.cuda.mem_get_info(device)[0]:
            return states
        return torch.from_numpy(np.asarray(arrays.read(self.path(name), "c"))).to(device)

    def write(self, **made: NDArray[Any]) -> None:
        """Write whole arrays."""
        for name, values in made.items():
            arrays.write(self.path(name), values)

    def create(self, name: str, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
        """Make an array of zeros, to be filled in place."""
        return arrays.create(self.path(name), dtype, shape)

    def common(self, name: str) -> NDArray[Any]:
        """An array that all parts share."""
        return arrays.read(self.shared / f"{name}.npy")

    def share(self, **made: NDArray[Any]) -> None:
        """Write arrays for all parts."""
        for name, values in made.items():
            arrays.write(self.shared / f"{name}.npy", values)

    def bitext(self) -> Bitext:
        """The tokens of all segments, `</s>` at the end of both sides."""
        names = ("source_ids", "source_offsets", "target_ids", "target_offsets")
        return Bitext(*(np.asarray(arrays.read(self.path(name), "c")) for name in names))


def batch_tokens(device: str) -> int:
    """Tokens of one batch of a model that suit a type of device."""
    return 1024 if device == "cpu" else 16384
