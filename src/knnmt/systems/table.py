"""The systems by name. Each is one file that says everything about itself; nothing else names them."""

from knnmt.errors import StoreError, UsageError
from knnmt.store.memories import AnyStore
from knnmt.systems import fast, faster, knn, proto, similar
from knnmt.systems.system import System

SYSTEMS: dict[str, System] = {}
AUTO = ("similar", "proto", "fast", "faster", "knn")  # what `auto` is: the first of these that a store was built for


def register(system: System) -> None:
    """Make a system known by its name."""
    SYSTEMS[system.name] = system


for _system in (
    knn.SYSTEM, fast.SYSTEM, faster.FAST_CLUSTERED, faster.FASTER, faster.FASTER_EXACT, similar.SYSTEM, proto.SYSTEM,
):  # fmt: skip
    register(_system)
OWN = frozenset(SYSTEMS)  # those that every process knows


def require_system(name: str) -> System:
    """The system of a name."""
    if name not in SYSTEMS:
        raise UsageError(f"there is no system {name!r}: use {', '.join(SYSTEMS)}")
    return SYSTEMS[name]


def serves(store: AnyStore, name: str) -> bool:
    """Whether a store was built for a system."""
    return all(part.provides(array) for part in store.parts for array in require_system(name).arrays)


def automatic(store: AnyStore) -> str:
    """The system that `auto` stands for with a store."""
    for name in (*AUTO, *(name for name in SYSTEMS if name not in AUTO)):
        if serves(store, name):
            return name
    raise StoreError(f"{store.name}: no system can search all parts; build the stores for the same systems (--for)")
