"""Models, loaded when a request needs one, within a budget of memory: the least recently used make room.

What a request holds stays until it is answered, also if its model has left the pool meanwhile.
"""

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from knnmt.languages import Languages
from knnmt.model.checkpoint import Model, load
from knnmt.model.embedded import DEFAULT, EMBEDDED, embedded, embedded_path
from knnmt.model.linear import Linear
from knnmt.translate import Translator

_log = logging.getLogger(__name__)
T = TypeVar("T")
PATIENCE = 600.0  # seconds that loading a model may take; it may have to be downloaded
WEIGHTS = (".safetensors", ".bin")


@dataclass(frozen=True)
class ModelSpec:
    """What `load` needs to load a model."""

    name: str = DEFAULT
    langs: str | None = None
    device: str = "auto"
    precision: str = "auto"
    shortlist: Path | None = None

    def load(self) -> Model:
        """Load it."""
        return load(
            self.name, device=self.device, precision=self.precision, langs=self.langs, shortlist=self.shortlist
        )  # fmt: skip

    @property
    def title(self) -> str:
        """Its name for people."""
        return embedded(Languages.parse(self.langs) if self.langs else None) if self.name == DEFAULT else self.name

    def size_on_disk(self) -> int:
        """The bytes of its weights on disk; 0 where that is unknown, as for a model that is still to be downloaded."""
        folder = embedded_path(self.title) if self.title in EMBEDDED else Path(self.name)
        files = [path for path in folder.glob("*") if path.suffix in WEIGHTS] if folder.is_dir() else []
        return sum(path.stat().st_size for path in files)


@dataclass
class _Loaded:
    """A model, its size in bytes, and the translators that have been made of it, by their memories."""

    model: Model
    size: int
    translators: dict[Hashable, Translator] = field(default_factory=dict)


class ModelPool:
    """The loaded models. `loading` names the one that is being loaded."""

    def __init__(self, budget: int | None = None, load: Callable[[ModelSpec], Model] = ModelSpec.load) -> None:
        self.budget, self._load = budget, load
        self._loaded: OrderedDict[ModelSpec, _Loaded] = OrderedDict()  # the least recently used first
        self._sizes: dict[ModelSpec, int] = {}
        self._loading = threading.Lock()  # held while a model is loaded or a translator made, which takes seconds
        self._changing = threading.Lock()  # held while `_loaded` changes, which takes no time
        self.loading: str | None = None
        self._since = 0.0  # when that began, on the monotonic clock

    @property
    def stuck(self) -> str | None:
        """What has been loading for too long; None if nothing has."""
        loading, seconds = self.loading, time.monotonic() - self._since
        if loading is None or seconds < PATIENCE:
            return None
        return f"{loading} has been loading for {seconds:.0f} seconds"

    def translator(self, spec: ModelSpec, key: Hashable, make: Callable[[Model], Translator]) -> Translator:
        """The translator of a model and some memories; loads and makes what is missing, which may take seconds."""
        found = self._loaded.get(spec)
        translator = found.translators.get(key) if found is not None else None
        if translator is None:
            translator = in_passing(lambda: self._make(spec, key, make))
        with self._changing:
            if spec in self._loaded:
                self._loaded.move_to_end(spec)
        return translator

    def _make(self, spec: ModelSpec, key: Hashable, make: Callable[[Model], Translator]) -> Translator:
        with self._loading:
            found = self._loaded.get(spec) or self._add(spec)
            found.translators[key] = translator = found.translators.get(key) or make(found.model)
            return translator

    def has(self, spec: ModelSpec, key: Hashable) -> bool:
        """Whether a translator is there at once."""
        found = self._loaded.get(spec)
        return found is not None and key in found.translators

    def keep(self, wanted: Callable[[Hashable], bool]) -> None:
        """Forget the translators that are not wanted any more, by their keys, and with them the stores they opened."""
        with self._changing:
            for each in self._loaded.values():
                each.translators = {key: made for key, made in each.translators.items() if wanted(key)}

    @property
    def used(self) -> int:
        """The bytes of all loaded models."""
        return sum(each.size for each in list(self._loaded.values()))

    @property
    def titles(self) -> list[str]:
        """The names of the loaded models, the least recently used first."""
        return [spec.title for spec in list(self._loaded)]

    def _add(self, spec: ModelSpec) -> _Loaded:
        self._make_room(self._sizes.get(spec) or spec.size_on_disk())
        self.loading, self._since = spec.title, time.monotonic()
        try:
            _log.info("loading %s", spec.title)
            model = self._load(spec)
            Translator(model).prepare()  # now, as nobody else has it
        finally:
            self.loading = None
        size = self._sizes[spec] = bytes_of(model)
        self._make_room(size)
        if self.budget is not None and size > self.budget:
            _log.warning("%s takes %d MB, more than the budget of %d MB", spec.title, size >> 20, self.budget >> 20)
        with self._changing:
            made = self._loaded[spec] = _Loaded(model, size)
        return made

    def _make_room(self, size: int) -> None:
        """Unload the least recently used models until there is room for so many bytes, or none is left."""
        while self.budget is not None and self._loaded and self.used + size > self.budget:
            with self._changing:
                spec, _ = self._loaded.popitem(last=False)
            _log.info("unloading %s", spec.title)


def in_passing(function: Callable[[], T]) -> T:
    """Call a function that computes with torch in a thread that ends with it.

    A thread that has computed keeps its own helpers for the next time. Once there are more of those than cores, OpenMP
    puts them to sleep after every operation, those of the model's thread too, and waking them takes 5% of its time.
    """
    done: Future[T] = Future()

    def run() -> None:
        try:
            done.set_result(function())
        except BaseException as error:
            done.set_exception(error)

    thread = threading.Thread(target=run, name="loading", daemon=True)
    thread.start()
    thread.join()
    return done.result()


def bytes_of(model: Model) -> int:
    """The bytes of a model's weights."""
    layers = [module for module in model.transformer.modules() if isinstance(module, Linear)]
    inside = {id(layer.weight) for layer in layers}
    others = (each for each in model.transformer.parameters() if id(each) not in inside)
    return sum(layer.nbytes for layer in layers) + sum(each.nbytes for each in others)
