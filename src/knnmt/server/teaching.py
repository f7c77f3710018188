"""Teaching: lessons are stored at once, or wait for a reviewer where the caller may not teach."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import anyio.to_thread
from fastapi import HTTPException

from knnmt.corpus import Segment
from knnmt.corpus.signature import signed
from knnmt.server.desks import Desk, Memory, loaded
from knnmt.server.metrics import Metrics
from knnmt.server.people import Caller
from knnmt.server.review import Suggestion
from knnmt.server.settings import ServerSettings
from knnmt.server.state import State, record
from knnmt.server.worker import Worker

NO_MEMORY = "there is no memory for these languages"
DISABLED = "Suggestions are disabled on this server."  # LibreTranslate's words


@dataclass(frozen=True)
class Taught:
    """What became of lessons: the ids of segments that were stored, or of suggestions that wait for a reviewer."""

    ids: tuple[str, ...] = ()
    queued: tuple[str, ...] = ()


@dataclass
class Teaching:
    """Adds to memories and removes from them, in the model's thread. `suggestions`: whether lessons of those who may
    not teach are queued."""

    settings: ServerSettings
    worker: Worker
    metrics: Metrics
    state: State | None
    suggestions: bool = True

    def at_once(self, desk: Desk) -> bool:
        """Whether the caller's lessons are stored at once."""
        learning = desk.learning
        return self.settings.teach and learning is not None and desk.caller.may("teach", learning.name)

    def accepted(self, desk: Desk) -> bool:
        """Whether the caller's lessons are taken, to be stored at once or to be reviewed."""
        reviewed = self.suggestions and self.state is not None and desk.learning is not None
        return self.at_once(desk) or (self.settings.teach and reviewed)

    def require(self, desk: Desk) -> None:
        """404 if a desk has no memory; 403 if it takes no lessons of the caller."""
        if not desk.opened:
            raise HTTPException(404, NO_MEMORY)
        if not self.accepted(desk):
            raise HTTPException(403, DISABLED)

    def learning(self, desk: Desk) -> Memory:
        """The memory that the caller may change at once; 403 if there is none."""
        self.require(desk)
        if desk.learning is None or not self.at_once(desk):
            raise HTTPException(403, "this key may suggest translations, but not change the memory")
        return desk.learning

    async def teach(self, desk: Desk, segments: Sequence[Segment]) -> Taught:
        """Add segments to the learning memory of a desk: when this returns they are on disk, and the next translation
        uses them. Those of a caller who may not teach are queued; 403 if they cannot be."""
        if not self.accepted(desk) or desk.learning is None:
            raise HTTPException(403, DISABLED)
        segments = [line for segment in segments for line in _lines(segment)]
        if not self.at_once(desk):
            return await self._suggest(desk.caller, desk.learning, segments)
        caller, memory = desk.caller, desk.learning
        model = (await loaded(desk, self.settings.time_limit)).translator.model

        def add() -> tuple[str, ...]:
            ids = memory.store.add([signed(segment, caller.name) for segment in segments], model).ids
            record(self.state, caller, "teach", memory.name, ids)
            return ids

        ids = await self.worker.call(add, memory.store.path)
        self.metrics.taught.inc(len(ids))
        return Taught(ids)

    async def _suggest(self, caller: Caller, memory: Memory, segments: Sequence[Segment]) -> Taught:
        assert self.state is not None
        suggestions = [
            Suggestion(memory.name, each.source, each.target, each.origin, caller.name, each.id) for each in segments
        ]
        state = self.state

        def suggest() -> tuple[str, ...]:
            ids = state.review.suggest(suggestions)
            record(state, caller, "suggest", memory.name, ids)
            return tuple(ids)

        return Taught(queued=await anyio.to_thread.run_sync(suggest))

    async def accept(self, desk: Desk, id: str, target: str | None) -> tuple[str, ...]:
        """Store a suggestion in the memory of a desk, with another translation if a reviewer edited it; 404 if another
        was faster."""
        caller, memory = desk.caller, desk.opened[0]
        model = (await loaded(desk, self.settings.time_limit)).translator.model

        def store() -> tuple[str, ...]:
            state, found = self.suggestion(caller, id)
            # first the lesson, then the decision: a crash in between leaves a suggestion that can be accepted again
            ids = memory.store.add([signed(found.lesson(target), found.author or caller.name)], model).ids
            state.review.decide(id, "accepted", caller.name)
            record(state, caller, "accept", memory.name, ids)
            return ids

        ids = await self.worker.call(store, memory.store.path)
        self.metrics.taught.inc(len(ids))
        return ids

    async def reject(self, caller: Caller, id: str) -> None:
        """Drop a suggestion; 404 if another reviewer was faster."""

        def drop() -> None:
            state, found = self.suggestion(caller, id)
            state.review.decide(id, "rejected", caller.name)
            record(state, caller, "reject", found.memory, [id])

        await self.worker.call(drop)

    def suggestion(self, caller: Caller, id: str) -> tuple[State, Suggestion]:
        """A suggestion that waits; 404 if there is none, or if the caller may not see it."""
        found = self.state.review.find(id) if self.state is not None else None
        if self.state is None or found is None or not found.visible_to(caller):
            raise HTTPException(404, f"no such suggestion: {id!r}")
        return self.state, found

    async def remove(self, caller: Caller, memory: Memory, ids: Sequence[str]) -> list[str]:
        """Remove segments of a memory; gives the ids that were there."""

        def remove() -> list[str]:
            gone = memory.store.remove(ids)
            if gone:
                record(self.state, caller, "remove", memory.name, gone)
            return gone

        return await self.worker.call(remove, memory.store.path)


def _lines(segment: Segment) -> list[Segment]:
    """A lesson as texts are translated, line by line; as one if it has an id, or lines that are not each other's."""
    lines = [[line.strip() for line in text.splitlines() if line.strip()] for text in (segment.source, segment.target)]
    if segment.id is not None or len(lines[0]) != len(lines[1]) or len(lines[0]) < 2:
        return [segment]
    return [replace(segment, source=source, target=target) for source, target in zip(*lines, strict=True)]
