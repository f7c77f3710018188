"""The arrays of a store's parts as tensors on a device, read as if the parts were one.

Rows are numbered consecutively across parts, and so are the numbers that an array holds: `view["link_entries"][links]`
gives the store's entries. What a number counts is told by the array's shape and bounds in the schema. Arrays are moved
to the device when they are first used.
"""

from collections.abc import Callable, Collection, Sequence
from copy import copy
from itertools import accumulate
from typing import Any, TypeVar

import torch
from torch import Tensor

from knnmt.search import Search, backend
from knnmt.search.metric import as_query, distance
from knnmt.search.rows import Keys, Rows
from knnmt.settings import Metric
from knnmt.store.lessons import LessonPart
from knnmt.store.part import Part
from knnmt.store.schema import ARRAYS

T = TypeVar("T")
Arrays = Part | LessonPart


class Column:
    """An array of all parts: `column[numbers]` (...) gives (..., *row).

    blocks: that of each part; starts: the number of each one's first row; offsets: added to what it holds
    """

    def __init__(
        self, search: Search, blocks: Sequence[Tensor], starts: Sequence[int], offsets: Sequence[int] | None
    ) -> None:
        self.search, self.blocks, self.starts, self.offsets = search, blocks, starts, offsets
        if offsets is not None:
            device = blocks[0].device
            self._bounds, self._added_to = (torch.tensor(each, device=device) for each in (starts[1:-1], offsets[:-1]))

    def __getitem__(self, numbers: Tensor) -> Tensor:
        return self._added(numbers, self.search.take(self.blocks, self.starts, numbers))

    def behind(self, numbers: Tensor) -> Tensor:
        """The rows behind these, each in the same part."""
        following = [block[1:] for block in self.blocks]
        return self._added(numbers, self.search.take(following, self.starts, numbers))

    def whole(self) -> Tensor:
        """All of it."""
        every = list(self.blocks)
        if self.offsets is not None:
            every = [block.long() + first for block, first in zip(every, self.offsets, strict=False)]
        return torch.cat(every) if len(every) > 1 else every[0]

    def _added(self, numbers: Tensor, found: Tensor) -> Tensor:
        """What was found of rows `numbers`, as numbers of the store."""
        if self.offsets is None:
            return found
        if len(self.blocks) == 1:
            return found.long()
        added = self._added_to[torch.bucketize(numbers, self._bounds, right=True)]
        return found.long() + added.view(*numbers.shape, *(1,) * (found.dim() - numbers.dim()))


class View:
    """Parts on a device, with the entries that must not be found: `hidden` (E,) bool, or None for none."""

    def __init__(
        self, parts: Sequence[Arrays], device: torch.device, metric: Metric, scale: float, weights: Sequence[float] = ()
    ) -> None:
        self.parts, self.device, self.metric = parts, device, metric
        self.weights = weights if len(set(weights)) > 1 else ()  # how much each part's entries count in p_kNN
        self.typical = scale  # the median squared distance of two random keys
        self.scale = float(distance(torch.tensor(scale), metric))  # the same in the store's metric
        self.search = backend(device)
        self.hidden: Tensor | None = None
        self._kept: dict[str, Any] = {}
        self._derived: dict[str, Any] = {}

    def of(self, parts: Sequence[Arrays]) -> "View":
        """Other parts on the same device, compared in the same way."""
        other = copy(self)
        other.parts, other.weights, other.hidden, other._kept, other._derived = parts, (), None, {}, {}
        return other

    def hiding(self, hidden: Tensor | None) -> "View":
        """The same parts with other entries hidden; tensors are shared."""
        other = copy(self)
        other.hidden, other._derived = hidden, {}
        return other

    def kept(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once for these parts."""
        return _once(self._kept, name, make)

    def derived(self, name: str, make: Callable[[], T]) -> T:
        """What `make` gives, made once for these parts and what is hidden of them."""
        return _once(self._derived, name, make)

    # ------------------------------------------------------------------------------------------------------ arrays

    def __contains__(self, name: str) -> bool:
        return all(name in part for part in self.parts)

    def __getitem__(self, name: str) -> Column:
        return self.kept(name, lambda: self._column(name))

    def _column(self, name: str) -> Column:
        spec = ARRAYS[name]
        into = _counted(spec.below or spec.offsets_into)
        starts = self.starts(_counted(spec.shape[0]))
        return Column(self.search, self.blocks(name), starts, self.starts(into) if into else None)

    def _tensor(self, part: int, name: str) -> Tensor:
        return self.kept(f"{name} of part {part}", lambda: torch.from_numpy(self.parts[part][name]).to(self.device))

    def blocks(self, name: str) -> list[Tensor]:
        """An array of each part, as it is there."""
        return [self._tensor(part, name) for part in range(len(self.parts))]

    def starts(self, counted: str) -> list[int]:
        """The number of each part's first `entries`, `tokens`, …, and that behind the last."""
        return [0, *accumulate(part.sizes[counted] for part in self.parts)]

    def first(self, counted: str) -> Tensor:
        """The number of each part's first `entries`, `tokens`, …. (parts,)."""
        return torch.tensor(self.starts(counted)[:-1], device=self.device)

    def count(self, counted: str) -> int:
        """The `entries`, `tokens`, … of all parts."""
        return sum(part.sizes[counted] for part in self.parts)

    def runs(self, offsets: str, numbers: Tensor) -> tuple[Tensor, Tensor]:
        """Where the run of each number (...) begins, by an array of offsets, and its length. Both (...)."""
        begin = self[offsets][numbers]
        return begin, self[offsets].behind(numbers) - begin

    def ranges(self, offsets: str, types: Tensor) -> tuple[Tensor, Tensor]:
        """The rows of each type (Q,) in each part, by an array of offsets by type. Both (Q, parts), in the part.

        None in a part that is hidden as a whole, as one of lessons only is: it must not change what is found elsewhere.
        """
        live = self.derived("live parts", self._live)
        by_type = self.kept(f"{offsets} of all parts", lambda: torch.stack(self.blocks(offsets), dim=1))
        starts, stops = by_type[types], by_type[types + 1]
        return starts, stops if live is None else torch.where(live, stops, starts)

    def live_parts(self) -> list[int]:
        """The parts that have a visible entry."""
        live = self.derived("live parts", self._live)
        return [part for part in range(len(self.parts)) if live is None or bool(live[part])]

    def _live(self) -> Tensor | None:
        """Which parts have a visible entry. (parts,) bool, or None where all have one."""
        if self.hidden is None or len(self.parts) == 1:
            return None
        live = torch.stack([~some.all() for some in self.hidden.split([part.sizes["entries"] for part in self.parts])])
        return None if bool(live.all()) else live

    # -------------------------------------------------------------------------------------------------------- rows

    def keys(self, side: str) -> Keys[Rows]:
        """The states of the `source` or the `target` side."""
        return self.kept(f"{side} keys", lambda: Keys([self._rows(part, side) for part in range(len(self.parts))]))

    def _rows(self, part: int, side: str) -> Rows:
        norms = self._tensor(part, f"{side}_norms")
        if f"{side}_keys" in self.parts[part]:
            return Rows(self._tensor(part, f"{side}_keys"), norms)
        return Rows(self._tensor(part, f"{side}_codes"), norms, self._tensor(part, f"{side}_codebooks"))

    def means(self, name: str) -> Keys[Rows]:
        """Means of clusters, whose norms are computed here."""

        def rows(part: int) -> Rows:
            values = self._tensor(part, name)
            return Rows(values, self.search.norms(values))

        return self.kept(f"{name} rows", lambda: Keys([rows(part) for part in range(len(self.parts))]))

    # ------------------------------------------------------------------------------------------------------ states

    def query(self, states: Tensor) -> Tensor:
        """States as they are compared with those of the store."""
        return as_query(states, self.metric)

    def distance(self, squared: Tensor) -> Tensor:
        """The store's metric of a squared distance."""
        return distance(squared, self.metric)

    def log_weights(self, entries: Tensor) -> Tensor:
        """The log of how much each entry (...) counts in p_kNN. (...), or () where all count the same."""
        if not self.weights:
            return torch.zeros((), device=self.device)
        made = lambda: (torch.tensor(self.weights, device=self.device).log(), self.first("entries")[1:])  # noqa: E731
        logs, starts = self.kept("log weights", made)
        return logs[torch.bucketize(entries, starts, right=True)]

    def visible(self, owner: Tensor, entries: Tensor) -> tuple[Tensor, Tensor]:
        """Those entries, each with its owner, that are not hidden."""
        if self.hidden is None:
            return owner, entries
        there = ~self.hidden[entries]
        return owner[there], entries[there]


def none_visible(hidden: Tensor, begin: Tensor, size: Tensor) -> Tensor:
    """Which runs (n,), by begin and size, are hidden as a whole, given what is hidden (m,). (n,) bool."""
    visible = torch.nn.functional.pad((~hidden).cumsum(0), (1, 0))
    return visible[begin + size] == visible[begin]


def entries_of(view: View, segments: Collection[int]) -> Tensor | None:
    """The entries of some segments. (E,) bool, or None for none."""
    if not segments:
        return None
    chosen = torch.zeros(view.count("segments"), dtype=torch.bool)
    chosen[list(segments)] = True
    sizes = torch.cat([torch.from_numpy(part["target_offsets"]).diff() for part in view.parts])
    return chosen.repeat_interleave(sizes).to(view.device)


def _counted(term: str | None) -> str:
    """What a shape's or a bound's term counts; nothing where it is the same in all parts."""
    name = (term or "").removesuffix("+1")
    return "" if name.isdigit() or name.endswith(("vocabulary", "width")) else name


def _once(made: dict[str, Any], name: str, make: Callable[[], T]) -> T:
    if name not in made:
        made[name] = make()
    found: T = made[name]
    return found
