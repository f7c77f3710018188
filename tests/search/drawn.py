"""Drawn at random: rows that sentences see, with their tokens, and states that look them up."""

from typing import Any, NamedTuple

import torch
from hypothesis import strategies as st
from torch import Tensor

from knnmt.buffers import Buffers
from knnmt.search.metric import Decay
from knnmt.search.rows import Keys, ProjectedRows
from knnmt.search.softmax import Seen
from knnmt.settings import Metric

CPU = torch.device("cpu")
VOCABULARY = 40
TEMPERATURE = 0.7
SIZES: dict[str, st.SearchStrategy[int]] = {  # what is asked of `draw`
    "seed": st.integers(0, 2**32),
    "batch": st.integers(1, 3),
    "beams": st.integers(1, 7),
    "rows": st.sampled_from([1, 9, 150]),
}


class Drawn(NamedTuple):
    """made: what everything is drawn by; keys: 300 rows of 5 numbers, or of 6 in half a byte each; seen: (B, N) of
    them; states: (B, K, 6)."""

    made: torch.Generator
    keys: Keys[ProjectedRows]
    seen: Seen
    states: Tensor

    def softmax(self, kind: Any, metric: Metric) -> Any:
        """A softmax of some kind over the rows."""
        decay = Decay(metric, TEMPERATURE)
        return kind(Buffers(self.states.device), self.keys, self.seen, decay)


def draw(seed: int, batch: int, beams: int, rows: int, device: torch.device = CPU, blocks: int = 1) -> Drawn:
    """Of each sentence, tokens are many, or one has most of the rows."""
    made = torch.Generator().manual_seed(seed)
    width, size, step = (6, 3, 0.4) if seed % 2 else (5, 5, 0.03)
    projection = torch.randn(6, width, generator=made).to(device), torch.randn(width, generator=made).to(device), step
    values = torch.randint(-127, 128, (300, size), generator=made, dtype=torch.int8).to(device)
    keys = Keys([ProjectedRows(some, *projection) for some in values.split(300 // blocks)])
    numbers = torch.randint(-1, 300, (batch, rows), generator=made)
    tokens = torch.randint(0, VOCABULARY, (batch, rows), generator=made)
    tokens //= torch.randint(1, VOCABULARY, (batch, 1), generator=made)
    farther = torch.rand(batch, rows, generator=made)
    states = 0.3 * torch.randn(batch, beams, 6, generator=made)
    return Drawn(made, keys, Seen(numbers.to(device), tokens.to(device), farther.to(device)), states.to(device))
