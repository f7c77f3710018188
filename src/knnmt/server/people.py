"""Who calls: a name, a role, and the memories that both hold for."""

from dataclasses import dataclass
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
    own: those of them that roles above `translate` hold for, None for all
    """

    name: str = ""
    role: Role = "translate"
    id: str | None = None
    memories: tuple[str, ...] | None = None
    own: tuple[str, ...] | None = None

    def may_use(self, memory: str) -> bool:
        """Whether they may translate with a memory and read it."""
        return self.memories is None or memory in self.memories

    def may(self, wanted: Role, memory: str) -> bool:
        """Whether they have a role, or a higher one, for a memory."""
        if not self.may_use(memory) or not includes(self.role, wanted):
            return False
        return wanted == "translate" or self.own is None or memory in self.own

    def role_for(self, memory: str) -> Role:
        """Their role for a memory that they may use."""
        return self.role if self.own is None or memory in self.own else "translate"


ANYONE = Caller(role="admin")
"""The caller of a server without keys."""
