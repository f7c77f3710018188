"""The configuration of a server for a team: a TOML file of pairs, memories and keys.

Paths in it are relative to the file. What is wrong is told in one line, with the place in the file.
"""

import re
import tomllib
from collections.abc import Collection, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Self, cast

from pydantic import BeforeValidator, Field, ValidationError

from knnmt.errors import KnnmtError, UsageError
from knnmt.languages import Languages, closeness
from knnmt.model.embedded import DEFAULT, EMBEDDED
from knnmt.server.access import read_keys
from knnmt.server.people import Key, Role
from knnmt.server.settings import ServerSettings
from knnmt.settings import Settings, refusal
from knnmt.store.manifest import read_manifest
from knnmt.store.memories import folder_names

MemoryName = Annotated[str, Field(pattern=r"^[^\x00-\x1f,]+$")]
KeyName = Annotated[str, Field(pattern=r"^[^\s#]\S*$")]
_SIZE = re.compile(r"\s*([\d.]+)\s*([KMGT]?)i?B?\s*", re.IGNORECASE)
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def _bytes(given: object) -> object:
    """`8GB` in bytes."""
    if isinstance(given, int):
        return given
    match = _SIZE.fullmatch(str(given))
    if match is None:
        raise ValueError(f"should be a size such as 8GB, not {given!r}")
    return int(float(match[1]) * _UNITS[match[2].upper()])


def _languages(given: object) -> object:
    try:
        return str(Languages.parse(str(given)))
    except UsageError as error:
        raise ValueError(str(error)) from None


def _digest(given: object) -> object:
    if re.fullmatch("[0-9a-f]{64}", str(given)) is None:
        raise ValueError("should be the 64 digits that `knnmt serve --keys FILE --new-key NAME` writes to the file")
    return given


Pair = Annotated[str, BeforeValidator(_languages)]
Digest = Annotated[str, BeforeValidator(_digest)]


class MemoryConfig(Settings):
    """A memory: a store, and the terms that go with it."""

    store: Path = Field(description="folder of the store")
    glossary: Path | None = Field(default=None, description="terms of this memory; they count before the pair's")
    weight: float = Field(default=1.0, ge=0, allow_inf_nan=False, description="weight of its entries in p_kNN")


class PairConfig(Settings):
    """A pair of languages: its model, and its memories in order."""

    langs: Pair | None = Field(default=None, description="such as de-en; default: that of memories or model")
    model: str = Field(default=DEFAULT, description="mini, a folder, or a model of the hub")
    memories: tuple[str, ...] | None = Field(
        default=None, description="names, the most specific first; default: all memories of these languages"
    )
    glossary: Path | None = Field(default=None, description="terms of all requests for this pair")
    system: str | None = Field(default=None, description="retrieval system; default: that of the store")
    settings: Path | None = Field(default=None, description="file of `knnmt tune`")
    device: str = Field(default="auto", description="cpu, cuda, cuda:1, or auto")
    precision: str = Field(default="auto", description="float32, float16, bfloat16, int8, or auto")
    shortlist: Path | None = Field(default=None, description="file of `knnmt shortlist`")


class KeyConfig(Settings):
    """A key: whose it is, by the name of its table, and what it opens."""

    digest: Digest = Field(description="SHA-256 of the key")
    role: Role = Field(default="translate", description="translate, teach, review or admin")
    expires: date | None = Field(default=None, description="the last day that it is valid")
    rate_limit: int | None = Field(default=None, ge=0, description="requests per minute; default: the server's")
    characters: int | None = Field(default=None, ge=1, description="characters per day; default: no limit")
    memories: tuple[str, ...] | None = Field(
        default=None, description="those it may use, the most specific first; default: all"
    )
    own: tuple[str, ...] | None = Field(
        default=None, description="those of them that it may teach and review, as its role allows; default: all"
    )


class ServerConfig(Settings):
    """All of a server."""

    server: ServerSettings = Field(default=ServerSettings(), description="address and limits, as the command's options")
    memory: Annotated[int | None, BeforeValidator(_bytes)] = Field(
        default=None, description="maximum size of all loaded models, such as 8GB; default: no limit"
    )
    state: Path | None = Field(default=None, description="folder for review queue and audit log")
    suggestions: bool = Field(default=True, description="let those who may not teach suggest, for review")
    memories: dict[MemoryName, MemoryConfig] = Field(default={}, description="stores by name")
    pairs: tuple[PairConfig, ...] = Field(default=tuple(PairConfig(model=name) for name in EMBEDDED), min_length=1)
    keys: dict[KeyName, KeyConfig] = Field(default={}, description="keys by name")

    @classmethod
    def of_stores(cls, stores: Collection[Path] | Mapping[Path, float], pair: PairConfig, **given: Any) -> Self:
        """A server of some stores, the last of which learns, for their languages; `pair` says how to translate them.

        With the embedded models and no languages named, their other directions are served without a memory.
        """
        weights = stores if isinstance(stores, Mapping) else dict.fromkeys(stores, 1.0)
        names = tuple(re.sub(r"[\x00-\x1f,]", "_", name) for name in folder_names(list(stores)))
        memories = {
            name: MemoryConfig(store=path, weight=weights[path]) for name, path in zip(names, stores, strict=True)
        }
        directions = []
        if pair.model == DEFAULT and pair.langs is None:
            of_stores = [read_manifest(path).languages for path in list(stores)[-1:]]
            langs = (of_stores or [EMBEDDED[0].partition("-")[2]])[0]
            pair = pair.model_copy(update={"langs": langs})
            source = Languages.parse(langs).source
            others = [name for name in EMBEDDED if not closeness(name.split("-")[1], source)]
            directions = [
                PairConfig(model=name, memories=(), device=pair.device, precision=pair.precision) for name in others
            ]
        pair = pair.model_copy(update={"memories": names[::-1]})
        return cls(memories=memories, pairs=(pair, *directions), **given)


def read_config(path: Path) -> ServerConfig:
    """Read and check a configuration; errors name the file and the place in it."""
    try:
        given = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: invalid TOML: {error}") from None
    try:
        config = ServerConfig.model_validate(given)
    except ValidationError as error:
        field, reason = refusal(ServerConfig, error)
        raise UsageError(f"{path}: {field + ': ' if field else ''}{reason}") from None
    except KnnmtError as error:
        raise UsageError(f"{path}: {error}") from None
    config = cast(ServerConfig, _absolute(config, path.resolve().parent))
    for place, name in _named_memories(config):
        if name not in config.memories:
            known = ", ".join(config.memories) or "none"
            raise UsageError(f"{path}: {place}: there is no memory {name!r}; there are: {known}")
    for name, key in config.keys.items():
        for each in key.own or ():
            if key.memories is not None and each not in key.memories:
                raise UsageError(f"{path}: keys.{name}.own: {each!r} is not among its memories")
    return config


def keys_of(config: ServerConfig, file: Path | None) -> list[Key]:
    """The keys of a configuration, and those of a key file."""
    own = [
        Key(name, key.digest, key.rate_limit, key.role, key.expires, key.memories, key.own, key.characters)
        for name, key in config.keys.items()
    ]
    return own if file is None else own + read_keys(file)


def _named_memories(config: ServerConfig) -> list[tuple[str, str]]:
    """Where memories are named, and their names."""
    pairs = [(f"pairs.{number}.memories", each.memories) for number, each in enumerate(config.pairs)]
    keys = [(f"keys.{name}.{what}", getattr(key, what)) for name, key in config.keys.items() for what in _LISTS]
    return [(place, name) for place, names in (*pairs, *keys) for name in names or ()]


_LISTS = ("memories", "own")


def _absolute(settings: Any, folder: Path) -> Any:
    """The same with all paths absolute, those that are relative taken from the folder of the file."""
    if isinstance(settings, Path):
        return folder / settings
    if isinstance(settings, tuple):
        return tuple(_absolute(each, folder) for each in settings)
    if isinstance(settings, dict):
        return {name: _absolute(each, folder) for name, each in settings.items()}
    if isinstance(settings, Settings):
        fields = {name: _absolute(getattr(settings, name), folder) for name in settings.model_fields_set}
        return settings.model_copy(update=fields)
    return settings
