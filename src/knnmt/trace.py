"""What a translation reports about its own work, for whoever measures it."""

from contextlib import AbstractContextManager, nullcontext

_NOTHING = nullcontext()


class Trace:
    """Observes translations; this one ignores everything, and a measurement overrides what it needs.

    Stages are nested: text ⊃ encode, select, decode ⊃ combine ⊃ lookup. `text` is all of `translate`, `select` what
    retrieval does once a batch, `combine` and `lookup` what it does every step.
    """

    detailed = False  # whether stages inside a step are observed: no step is replayed as a whole then

    def stage(self, name: str) -> AbstractContextManager[None]:
        """The context in which a stage runs."""
        return _NOTHING

    def step(self, sentences: int) -> None:
        """A decoding step begins for so many sentences."""


NO_TRACE = Trace()
