"""What tuning has to know of a system, until the systems say it themselves."""

from knnmt.store.store import Datastore

C_GRIDS: dict[str, tuple[int, ...]] = {"fast": (16, 64, 256, 1024), "proto": (16, 64, 256, 1024)}
MOST_K = 512


def most_k(store: Datastore, system: str) -> int | None:
    """The largest k to be tried; None where a system takes all that a sentence sees."""
    if system == "similar":
        return None
    k_max = store.manifest.settings["k_max"] if system == "faster" else None
    return min(MOST_K, k_max or MOST_K, store.part.sizes["entries"])
