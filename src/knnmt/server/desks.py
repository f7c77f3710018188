"""Desks: what a request is translated with. A pair of languages, a model, memories in order, glossaries.

A desk is made for each request and costs nothing; translators, which hold a model and opened stores, are shared.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio.to_thread
from fastapi import HTTPException

from knnmt.errors import UsageError
from knnmt.languages import Languages, closeness
from knnmt.server.detection import Pair, languages_of, name_of
from knnmt.server.glossaries import Glossaries
from knnmt.server.people import Caller
from knnmt.server.work_items import UnavailableError
from knnmt.store.store import Store
from knnmt.text.glossary import Glossary
from knnmt.translate import Translator


@dataclass(frozen=True, eq=False)
class Memory:
    """A named store, opened once for all desks."""

    name: str
    languages: Languages
    store: Store

    @property
    def learns(self) -> bool:
        """Whether segments can be added."""
        return self.store.learns


@dataclass(frozen=True)
class Direction:
    """A pair of languages that the server translates: its model, its default memories, its glossary.

    memories: their names, the most specific first; glossaries and translator give those for some of them, the latter
    after loading what is missing
    """

    pair: Pair
    memories: tuple[str, ...]
    glossaries: Callable[[tuple[str, ...]], Glossaries]
    translator: Callable[[tuple[str, ...]], Translator]
    loaded: Callable[[tuple[str, ...]], bool]

    @property
    def languages(self) -> Languages:
        """Its languages."""
        return self.pair.languages


@dataclass(frozen=True, eq=False)
class Desk:
    """What a request is translated with.

    opened: its memories, the most specific first; learning: the one that this caller's lessons, or suggestions, go to
    """

    caller: Caller
    direction: Direction
    opened: tuple[Memory, ...]
    learning: Memory | None

    @property
    def memories(self) -> tuple[str, ...]:
        """The names of its memories, the most specific first."""
        return tuple(memory.name for memory in self.opened)

    @property
    def languages(self) -> Languages:
        """Source and target language."""
        return self.direction.pair.languages

    @property
    def pair(self) -> Pair:
        """The same, with names and detection."""
        return self.direction.pair

    @property
    def glossaries(self) -> Glossaries:
        """The glossary of the desk, and how terms of a request are put before it."""
        return self.direction.glossaries(self.memories)

    @property
    def loaded(self) -> bool:
        """Whether its model is loaded."""
        return self.direction.loaded(self.memories)

    @property
    def translator(self) -> Translator:
        """Model and memories, loaded now if they are not: `await server.loaded(desk)` before, to keep others going."""
        return self.direction.translator(self.memories)


async def loaded(desk: Desk, seconds: float) -> Desk:
    """The desk, after its model is loaded; 503 if that takes longer than so many seconds."""
    if not desk.loaded:
        try:
            load = anyio.to_thread.run_sync(lambda: desk.translator, abandon_on_cancel=True)
            await asyncio.wait_for(load, seconds)
        except TimeoutError:
            raise UnavailableError(f"the model for {desk.languages} is being loaded: try again later", 5) from None
    return desk


class NoPairError(UsageError):
    """The server does not translate from one of these languages to the other, in LibreTranslate's words."""


class Desks:
    """The pairs and the memories of a server."""

    def __init__(self, directions: Sequence[Direction], memories: Iterable[Memory]) -> None:
        self.directions = tuple(directions)
        self.memories: Mapping[str, Memory] = {memory.name: memory for memory in memories}

    @classmethod
    def of(cls, translator: Translator, languages: Languages | None, glossary: Glossary | None) -> "Desks":
        """The only desk of a translator that was loaded by its owner: the last of its stores is the most specific."""
        languages = languages or languages_of(translator)
        store = translator.store
        names, stores = ((), ()) if store is None else (store.memory_names, store.stores)
        memories = [Memory(name, languages, one) for name, one in zip(names, stores, strict=True)]
        glossaries = Glossaries(glossary, languages)
        direction = Direction(Pair(languages), names[::-1], lambda _: glossaries, lambda _: translator, lambda _: True)
        return cls([direction], memories)

    def pairs(self) -> list[Languages]:
        """The pairs of languages, in the order of the configuration."""
        return [direction.languages for direction in self.directions]

    def desk(
        self, caller: Caller, source: str | None, target: str | None, memories: Sequence[str] | None = None
    ) -> Desk:
        """The desk for a pair, or the first that fits what is given; 404 for memories that do not fit or exist."""
        named = None if memories is None else [self.memory(caller, name) for name in memories]
        if source is None and target is None and named:
            source, target = named[0].languages.source, named[0].languages.target
        direction = self._direction(source, target)
        if named is None:
            chosen = self._default(caller, direction)
        else:
            chosen = tuple(dict.fromkeys(named))
            for memory in chosen:
                if not fits(memory.languages, direction.languages):
                    raise HTTPException(
                        404, f"{memory.name} is a memory for {memory.languages}, not {direction.languages}"
                    )
        fitting = [memory for memory in chosen if memory.learns]
        own = (memory for memory in fitting if caller.may("teach", memory.name))
        return Desk(caller, direction, chosen, next(own, fitting[0] if fitting else None))

    def memory(self, caller: Caller, name: str) -> Memory:
        """A memory; 404 if there is none, or if the caller may not use it."""
        if name not in self.memories or not caller.may_use(name):
            raise HTTPException(404, f"no such memory: {name!r}")
        return self.memories[name]

    def of_caller(self, caller: Caller) -> list[Memory]:
        """The memories that a caller may use, in their order."""
        names = self.memories if caller.memories is None else caller.memories
        return [self.memories[name] for name in names if name in self.memories]

    def _default(self, caller: Caller, direction: Direction) -> tuple[Memory, ...]:
        """The memories that a caller gets without naming any: their own in their order, else those of the pair."""
        names = direction.memories if caller.memories is None else caller.memories
        usable = (self.memories[name] for name in names if name in self.memories)
        return tuple(memory for memory in usable if fits(memory.languages, direction.languages))

    def _direction(self, source: str | None, target: str | None) -> Direction:
        source = None if source == "auto" else source
        for direction in self.directions:
            if (target is None or direction.pair.is_target(target)) and (
                source is None or direction.pair.is_source(source)
            ):
                return direction
        known = [tag for pair in self.pairs() for tag in (pair.source, pair.target)]
        for code in (target, source):
            if code is not None and not any(closeness(tag, code) for tag in known):
                raise NoPairError(f"{code} is not supported")
        to, of = (f"{name_of(code)} ({code})" if code else "any language" for code in (target, source or "auto"))
        raise NoPairError(f"{to} is not available as a target language from {of}")


def fits(one: Languages, other: Languages) -> bool:
    """Whether two pairs are the same, regions aside where one of them has none."""
    return bool(closeness(one.source, other.source) and closeness(one.target, other.target))
