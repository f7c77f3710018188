"""A team's server without models: two pairs, three memories, four people."""

import hashlib
from pathlib import Path

from fastapi import FastAPI

from knnmt.corpus import Segment
from knnmt.languages import Languages
from knnmt.server.app import create_app_of
from knnmt.server.desks import Desks, Direction, Memory
from knnmt.server.detection import Pair
from knnmt.server.glossaries import Glossaries
from knnmt.server.people import Key
from knnmt.server.settings import ServerSettings
from knnmt.text.glossary import Glossary
from knnmt.text.terms import Term
from knnmt.translate import Translator

from .standin import StandIn, Store

PAIRS = {"handbook": "de-en", "company": "de-en", "secret": "en-de"}


def key(name: str, **rights: object) -> Key:
    """The key of a person, which is their name."""
    return Key(name, hashlib.sha256(name.encode()).hexdigest(), **rights)  # type: ignore[arg-type]


KEYS = [
    key("tina", role="translate", memories=("handbook", "company")),
    key("theo", role="teach", memories=("handbook", "company"), own=("handbook",)),
    key("rita", role="review", memories=("handbook",)),
    key("ada", role="admin"),
]


def stores() -> dict[str, Store]:
    """The stores, each with one segment that nobody else has."""
    made = {}
    for name, languages in PAIRS.items():
        store = made[name] = Store()
        store.manifest.languages, store.memory_names = languages, (name,)
        StandIn(store=store).add([Segment(f"text of {name}", f"translation of {name}", f"file of {name}", f"{name}-1")])
    return made


def team(folder: Path | None, *, keys: list[Key] | None = None, **settings: object) -> FastAPI:
    """The server; its state is in a folder."""
    opened = stores()
    memories = [Memory(name, Languages.parse(PAIRS[name]), store) for name, store in opened.items()]  # type: ignore[arg-type]
    made: dict[tuple[str, ...], Translator] = {}

    def translator(names: tuple[str, ...]) -> Translator:
        if names not in made:
            made[names] = StandIn(store=opened[names[0]] if names else None).as_translator()
        return made[names]

    def direction(languages: str) -> Direction:
        pair = Languages.parse(languages)
        terms = {name: Glossary([Term(f"word of {name}", f"term of {name}")], pair) for name in PAIRS}

        def glossaries(names: tuple[str, ...]) -> Glossaries:
            return Glossaries(terms[names[0]] if names else None, pair)

        own = tuple(name for name, of in PAIRS.items() if of == languages)
        return Direction(Pair(pair), own, glossaries, translator, lambda _: True)

    desks = Desks([direction("de-en"), direction("en-de")], memories)
    return create_app_of(desks, ServerSettings(**settings), KEYS if keys is None else keys, folder)  # type: ignore[arg-type]
