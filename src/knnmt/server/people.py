"""Who calls: a name, a role, and the memories that both hold for."""

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal

Role = Literal["translate", "teach", "review", "admin"]
"""What a caller may do; each role includes those before it.

translate: translate, search and export their memories, suggest; teach: change their memories; review: decide on the
suggestions of others; admin: read the audit log, reload the configuration.
"""
ROLES: tuple[Role, ...] = ("translate", "teach", "review", "admin")


def includes(role: Role, wanted: Role) -> bool:
    """Whether a role includes another."""
    return ROLES.index(role) >= ROLES.index(wanted)


@dataclass(frozen=True)
class Caller:
    """Who sent a request.

    name: "" without keys; id: digest of the key; memories: those they may use, the most specific first, None for all;
    own: those of them that roles above `translate` hold for, None for all; characters: per day, None for any number
    """

    name: str = ""
    role: Role = "translate"
    id: str | None = None
    memories: tuple[str, ...] | None = None
    own: tuple[str, ...] | None = None
    characters: int | None = None

    def may_use(self, memory: str) -> bool:
        """Whether they may translate with a memory and read it."""
        return self.memories is None or memory in self.memories

    def may(self, wanted: Role, memory: str) -> bool:
        """Whether they have a role, or a higher one, for a memory."""
        return self.may_use(memory) and includes(self.role_for(memory), wanted)

    def role_for(self, memory: str) -> Role:
        """Their role for a memory that they may use."""
        return self.role if self.own is None or memory in self.own else "translate"


ANYONE = Caller(role="admin")
"""The caller of a server without keys."""
READER = Caller()
"""The caller of a server without keys that cannot be taught."""


@dataclass(frozen=True)
class Key:
    """A key: its name, its SHA-256 digest, and what it opens.

    limit: requests a minute, None for the server's, 0 for any number; expires: the last day that it is valid
    """

    name: str
    digest: str
    limit: int | None = None
    role: Role = "teach"
    expires: date | None = None
    memories: tuple[str, ...] | None = None
    own: tuple[str, ...] | None = None
    characters: int | None = None

    @property
    def caller(self) -> Caller:
        """Who has it."""
        return Caller(self.name, self.role, self.digest, self.memories, self.own, self.characters)

    @property
    def expired(self) -> bool:
        """Whether its last day is over, in UTC."""
        return self.expires is not None and datetime.now(UTC).date() > self.expires
