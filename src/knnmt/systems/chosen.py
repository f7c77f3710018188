"""The entries that tokens link to; and the k nearest of chosen entries, which several systems look up."""

from torch import Tensor

from knnmt.search.nearest import runs
from knnmt.search.rows import FAR
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.system import Candidates, Found
from knnmt.systems.view import View


def linked(view: View, owner: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """The visible entries that stored tokens (n,) link to, each with its token's owner; as often as they are linked."""
    begin, size = view.runs("link_offsets", tokens)
    return view.visible(owner.repeat_interleave(size), view["link_entries"][runs(begin, size)])


class Nearest(Candidates):
    """The k nearest of the entries (B, N) that each sentence sees, -1 for none."""

    by_sentence: tuple[str, ...] = ("entries", "tokens", "table")

    def __init__(self, view: View, entries: Tensor, settings: RetrievalSettings) -> None:
        super().__init__(view, settings)
        self.entries, self.table = entries, view.search.table(view.keys("target"), entries)
        self.tokens = view["target_ids"][entries.clamp_min(0)].long()

    def offered(self) -> Tensor:
        """The tokens of the sentence's own entries."""
        return self.tokens.masked_fill(self.entries < 0, -1)

    def find(self, states: Tensor) -> Found:
        """The nearest of the sentence's own entries."""
        return self.nearest(states, self.k or self.table.count)

    def nearest(self, states: Tensor, count: int, within: tuple[Tensor, Tensor] | None = None) -> Found:
        """The nearest of the places that each state may find (B, K): the first, and that behind the last."""
        squared, places = self.table.nearest(states, count, within)
        entries, tokens = (each[:, None].expand(-1, places.size(1), -1) for each in (self.entries, self.tokens))
        distances = self.view.distance(squared)
        entries = entries.gather(2, places).masked_fill_(distances == FAR, -1)
        log_weights = self.view.log_weights(entries)
        return Found(entries, tokens.gather(2, places), distances, distances[:, :, 0], log_weights)
