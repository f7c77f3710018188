"""Opening what a configuration names: memories once each, pairs with their glossaries; models are loaded on demand."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from knnmt.errors import KnnmtError, UsageError
from knnmt.languages import Languages
from knnmt.model.checkpoint import Model
from knnmt.model.embedded import DEFAULT, EMBEDDED
from knnmt.retrieval.tuned import Tuned
from knnmt.server.config import MemoryConfig, PairConfig, ServerConfig
from knnmt.server.desks import Desks, Direction, Memory, fits
from knnmt.server.detection import Pair, languages_of
from knnmt.server.glossaries import Glossaries
from knnmt.server.model_pool import ModelPool, ModelSpec
from knnmt.store.memories import AnyStore, Memories
from knnmt.store.store import Store
from knnmt.text.glossary import Glossary
from knnmt.translate import Translator


def open_desks(config: ServerConfig, pool: ModelPool, before: Desks | None = None) -> Desks:
    """The pairs and memories of a configuration. What `before` has opened is used again."""
    memories = [_memory(name, one, before) for name, one in config.memories.items()]
    known = {memory.name: memory for memory in memories}
    directions: list[Direction] = []
    for number, pair in enumerate(config.pairs):
        direction = _direction(pair, known, config.memories, pool)
        if any(fits(direction.languages, other.languages) for other in directions):
            raise UsageError(f"pairs.{number}: {direction.languages} is there twice")
        directions.append(direction)
    for memory in memories:
        if not any(fits(memory.languages, direction.languages) for direction in directions):
            raise UsageError(f"memories.{memory.name}: no pair translates {memory.languages}; add it to [[pairs]]")
    return Desks(directions, memories)


def _memory(name: str, config: MemoryConfig, before: Desks | None) -> Memory:
    """A memory, opened; one that is open under the same name stays as it is."""
    old = before.memories.get(name) if before is not None else None
    if old is not None and old.store.path.resolve() == config.store.resolve():
        return old
    try:
        store = Store(config.store, called=name)
    except KnnmtError as error:
        raise UsageError(f"memories.{name}: {error}") from None
    return Memory(name, Languages.parse(store.manifest.languages), store)


def _direction(
    pair: PairConfig, known: Mapping[str, Memory], configs: Mapping[str, MemoryConfig], pool: ModelPool
) -> Direction:
    languages = _languages(pair, known, pool)
    every = tuple(name for name, memory in known.items() if fits(memory.languages, languages))
    names = every if pair.memories is None else pair.memories
    for name in names:
        if name not in every:
            raise UsageError(f"{name} is a memory for {known[name].languages}, and stands in the pair {languages}")
    if pair.system not in (None, "base") and not names:
        raise UsageError(f"the system {pair.system} of {languages} needs a store: make one with `knnmt build`")
    spec = _spec(pair, str(languages) if pair.model == DEFAULT else pair.langs)
    retrieval = None if pair.settings is None else Tuned.load(pair.settings)

    def key(chosen: tuple[str, ...]) -> Hashable:
        return tuple((known[name], configs[name].weight) for name in chosen), pair.system, pair.settings

    def translator(chosen: tuple[str, ...]) -> Translator:
        return pool.translator(spec, key(chosen), lambda model: make(model, chosen))

    def make(model: Model, chosen: tuple[str, ...]) -> Translator:
        if not chosen:
            return Translator(model, system="base")
        store = _together([known[name] for name in chosen], [configs[name].weight for name in chosen])
        return Translator(model, store, system=pair.system, retrieval=retrieval)

    glossary = _glossaries(languages, pair.glossary, {name: configs[name].glossary for name in every})
    return Direction(Pair(languages), names, glossary, translator, lambda chosen: pool.has(spec, key(chosen)))


def _languages(pair: PairConfig, known: Mapping[str, Memory], pool: ModelPool) -> Languages:
    """The languages of a pair: as they are given, else those of its memories, else those of its model."""
    if pair.langs is not None:
        return Languages.parse(pair.langs)
    if pair.memories:
        return known[pair.memories[0]].languages
    if pair.model in EMBEDDED:
        return Languages.parse(pair.model.partition("-")[2])
    return languages_of(pool.translator(_spec(pair, pair.langs), (), Translator))


def _spec(pair: PairConfig, langs: str | None) -> ModelSpec:
    return ModelSpec(pair.model, langs, pair.device, pair.precision, pair.shortlist)


def _together(memories: Sequence[Memory], weights: Sequence[float]) -> AnyStore:
    """The store of one memory, or of several as one; the most specific, which is the first, counts as their last."""
    if len(memories) == 1:
        return memories[0].store
    paths = {memory.store.path: weight for memory, weight in zip(memories, weights, strict=True)}
    ordered = dict(reversed(paths.items()))
    return Memories(ordered, [memory.name for memory in reversed(memories)])


def _glossaries(
    languages: Languages, own: Path | None, of_memories: Mapping[str, Path | None]
) -> Callable[[tuple[str, ...]], Glossaries]:
    """The glossary for some memories: the terms of the most specific one first, those of the pair last."""
    read = {name: _read(path, languages) for name, path in of_memories.items() if path is not None}
    last = None if own is None else _read(own, languages)

    @lru_cache
    def glossary(chosen: tuple[str, ...]) -> Glossaries:
        parts = [read[name] for name in chosen if name in read] + ([] if last is None else [last])
        if len(parts) <= 1:
            return Glossaries(parts[0] if parts else None, languages)
        terms = {term.source.casefold(): term for part in reversed(parts) for term in part.terms}
        return Glossaries(Glossary(terms.values(), languages), languages)

    return glossary


def _read(path: Path, languages: Languages) -> Glossary:
    return Glossary.read(path, languages).between(languages)
