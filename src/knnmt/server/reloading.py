"""Reloading: configuration and keys are read again, all or nothing, while requests are served."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import anyio.to_thread

from knnmt.errors import KnnmtError, UsageError
from knnmt.server.access import read_keys
from knnmt.server.config import keys_of, read_config
from knnmt.server.desks import Desks
from knnmt.server.model_pool import ModelPool
from knnmt.server.opening import TranslatorKey, open_desks
from knnmt.server.people import Caller, Key
from knnmt.server.server import Server
from knnmt.server.settings import ServerSettings
from knnmt.server.state import record
from knnmt.server.work_items import UnavailableError


@dataclass(frozen=True)
class _Read:
    """What was read; `restart` are settings that only a restart changes."""

    desks: Desks
    keys: Sequence[Key]
    suggestions: bool
    budget: int | None = None
    restart: list[str] = field(default_factory=list)


@dataclass
class Reloader:
    """Reads again what a server was started with.

    config: the file of its configuration, if it has one; configured: the settings in it, which options may override
    """

    server: Server
    config: Path | None = None
    configured: ServerSettings = field(default_factory=ServerSettings)
    _busy: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def reload(self, caller: Caller) -> list[str]:
        """Read configuration and keys again; requests in flight finish with the old ones.

        Gives the names of settings that are new but need a restart. UsageError if something is wrong with the new ones.
        """
        if self._busy.locked():
            raise UnavailableError("the configuration is being reloaded: try again later", 2)
        async with self._busy:
            new, server = await anyio.to_thread.run_sync(self._read), self.server
            server.desks, server.teaching.suggestions = new.desks, new.suggestions
            server.doorkeeper.replace(new.keys)
            if server.pool is not None:
                server.pool.budget = new.budget
                opened = set(new.desks.memories.values())
                server.pool.keep(lambda key: not isinstance(key, TranslatorKey) or key.uses_only(opened))
            await anyio.to_thread.run_sync(record, server.state, caller, "reload")
        return new.restart

    def _read(self) -> _Read:
        server = self.server
        pool: ModelPool | None = server.pool
        if self.config is None or pool is None:
            keys = read_keys(server.settings.keys) if server.settings.keys is not None else []
            return _Read(server.desks, keys, server.teaching.suggestions)
        config = read_config(self.config)
        keys = keys_of(config, server.settings.keys)
        if bool(keys) != server.doorkeeper.needs_key:
            raise UsageError(f"{self.config}: to {'require' if keys else 'remove all'} keys, restart the server")
        try:
            desks = open_desks(config, pool, server.desks)
        except KnnmtError as error:
            raise UsageError(f"{self.config}: {error}") from None
        fields = ServerSettings.model_fields
        given = {name for name in fields if getattr(config.server, name) != getattr(self.configured, name)}
        return _Read(desks, keys, config.suggestions, config.memory, sorted(given))
