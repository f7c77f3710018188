"""A store on a device, kept up to date with what it is taught and what is removed from it."""

from collections.abc import Collection

import torch

from knnmt.errors import StoreError
from knnmt.store.memories import AnyStore
from knnmt.systems.view import View, entries_of


class LiveStore:
    """The view of a store's parts, and its lessons beside it, as of the last `refresh`.

    left_out: numbers of segments, in parts or taught, that nothing may find. `view.hidden` are the entries that no
    search of the parts may find: those left out, removed, or of lessons, which are searched beside it.
    """

    def __init__(self, store: AnyStore, device: torch.device, left_out: Collection[int] = ()) -> None:
        self.store, self.left_out = store, frozenset(left_out)
        self.view = self._view(device)
        self._seen: tuple[object, int] | None = None
        self._hidden: set[int] = set()
        self.taught: View | None = None
        self.refresh()

    def _view(self, device: torch.device) -> View:
        made = self.store.manifest
        return View(self.store.parts, device, made.metric, made.scale, self.store.part_weights)

    def refresh(self) -> None:
        """Load what was added to the store, and removed from it, since the last time."""
        store = self.store
        if self._seen == (store.parts, store.version):
            return
        if self._seen is not None and self._seen[0] != store.parts:
            if self.left_out:
                raise StoreError(
                    f"{store.path} was compacted or replaced while segments of it were left out, whose numbers have "
                    "changed: start again"
                )
            self.view, self._hidden = self._view(self.view.device), set()
        self._seen = store.parts, store.version
        stored = self.view.count("segments")
        hidden = store.removed | store.folded | {number for number in self.left_out if number < stored}
        if hidden != self._hidden:
            self._hidden, self.view = hidden, self.view.hiding(entries_of(self.view, hidden))
        taught = store.lesson_part
        taught = taught.without(self.left_out) if taught is not None else None
        self.taught = self.view.of([taught]) if taught is not None else None
