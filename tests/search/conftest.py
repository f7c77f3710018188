"""How searches are computed in tests: as lookups are."""

from ..retrieval.conftest import lone_thread, way

__all__ = ["lone_thread", "way"]
