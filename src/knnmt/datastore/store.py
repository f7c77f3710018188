"""`Datastore`: a store on disk, opened. Arrays are mapped into memory, and checked, when they are first asked for."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from knnmt.corpus.segment import Segment
from knnmt.datastore import format
from knnmt.errors import StoreError

if TYPE_CHECKING:
    from knnmt.align import Aligner
    from knnmt.datastore.settings import BuildSettings
    from knnmt.datastore.stages import Progress
    from knnmt.model.represent import StateModel


class Part:
    """A sealed part of a store: `part["target_ids"]` is an array, opened at the first use."""

    def __init__(self, folder: Path, sealed: format.SealedPart) -> None:
        self.folder, self.sizes, self.files = folder, sealed.sizes, sealed.files
        self._open: dict[str, NDArray[Any]] = {}

    def __contains__(self, name: str) -> bool:
        return f"{name}.npy" in self.files

    def __getitem__(self, name: str) -> NDArray[Any]:
        if name not in self._open:
            if name not in self:
                raise StoreError(f"{self.folder} was built without {name}: build the store again for this system")
            self._open[name] = format.open_array(self.folder / f"{name}.npy", name, self.sizes)
        return self._open[name]

    def file(self, name: str) -> Path:
        """A file that is no array, after its checksum: what reads it may trust its content."""
        if name not in self.files:
            raise StoreError(f"{self.folder} was built without {name}")
        format.expect_checksum(self.folder / name, self.files[name])
        return self.folder / name


class Datastore:
    """Every token of a parallel corpus, with the state in which a model predicts it.

    >>> store = Datastore.build("train.tmx", langs="de-en", out="store")
    >>> store = Datastore.open("store")
    """

    def __init__(self, path: Path, manifest: format.Manifest) -> None:
        self.path, self.manifest = path, manifest
        if len(manifest.parts) != 1:
            raise StoreError(f"{path} has {len(manifest.parts)} parts, and this knnmt reads stores of one")
        self.part = Part(path / manifest.parts[0].name, manifest.parts[0])

    @classmethod
    def open(cls, path: str | Path) -> "Datastore":
        """Open a store; only the manifest is read, and the size of each file compared with it."""
        path = Path(path)
        store = cls(path, format.read_manifest(path))
        for name, file in store.part.files.items():
            format.expect_size(store.part.folder / name, file.size)
        return store

    @classmethod
    def build(
        cls,
        corpus: str | Path | Sequence[str | Path],
        *,
        out: str | Path,
        langs: str,
        model: "str | Path | StateModel" = "mini-de-en",
        settings: "BuildSettings | None" = None,
        alignments: str | Path | None = None,
        replace: bool = False,
        workers: int | None = None,
        progress: "Progress | None" = None,
    ) -> "Datastore":
        """Make a store from parallel text, or finish what an interrupted build began: see `knnmt.datastore.build`."""
        from knnmt.datastore.build import build
        from knnmt.model.checkpoint import load

        paths = [Path(one) for one in ([corpus] if isinstance(corpus, str | Path) else corpus)]
        loaded = load(model, langs=langs) if isinstance(model, str | Path) else model
        build(
            paths, loaded, Path(out), langs, settings, alignments=None if alignments is None else Path(alignments),
            replace=replace, workers=workers, progress=progress,
        )  # fmt: skip
        return cls.open(out)

    def check(self, model: "StateModel") -> None:
        """Refuse a model that this store was not made with: its states would mean nothing here."""
        made = self.manifest
        if model.fingerprint != made.model_fingerprint:
            raise StoreError(f"{self.path} was made with another model ({made.model}): use that, or build it again")
        if model.tokenizer.fingerprint != made.tokenizer_fingerprint:
            here = "-".join(code for code in (model.tokenizer.source, model.tokenizer.target) if code)
            raise StoreError(
                f"{self.path} was made with another tokenizer or other languages ({made.model}, {made.languages}; "
                f"here: {model.name}, {here or 'none named'}): use those, or build it again"
            )

    # ------------------------------------------------------------------------------------------------- texts

    def __len__(self) -> int:
        return self.part.sizes["segments"]

    def segment(self, number: int) -> Segment:
        """A segment, by its number from 0."""
        if not 0 <= number < len(self):
            raise IndexError(f"{self.path} has {len(self):,} segments, and none of number {number}")
        offsets = self.part["text_offsets"][4 * number : 4 * number + 5].tolist()
        text = self.part["text"]
        try:
            source, target, origin, key = (bytes(text[start:stop]).decode() for start, stop in pairwise(offsets))
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.path} is damaged: segment {number} is no text") from error
        return Segment(source, target, origin, key or None)

    def segments(self) -> Iterator[Segment]:
        """All segments in order."""
        return map(self.segment, range(len(self)))

    def where(self, entries: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The segment of each entry, and its place among the segment's target tokens."""
        offsets = self.part["target_offsets"]
        segments = np.searchsorted(offsets, entries, side="right") - 1
        return segments, entries - offsets[segments]

    def aligner(self) -> "Aligner":
        """The alignment model of the corpus: it aligns new segments."""
        from knnmt.align import Aligner

        return Aligner.load(self.part.file(format.ALIGNER))

    # ------------------------------------------------------------------------------------------------ checks

    def verify(self) -> Iterator[str]:
        """Read everything and compare it with what was sealed; names each file when it is found sound."""
        part = self.part
        for name, file in part.files.items():
            format.expect_checksum(part.folder / name, file)
            if name.endswith(".npy"):
                part[name.removesuffix(".npy")]
            yield name
        strangers = {path.name for path in part.folder.iterdir()} - set(part.files)
        if strangers:
            raise StoreError(f"{part.folder} holds what is not part of the store: {', '.join(sorted(strangers))}")
        for what, sound in _agreements(part):
            if not sound:
                raise StoreError(f"{part.folder} is damaged: {what}")


def _agreements(part: Part) -> Iterator[tuple[str, bool]]:
    """Where two arrays say the same, whether they do."""
    if "cluster_starts" in part and "type_offsets" in part:
        starts = part["cluster_starts"][part["cluster_offsets"]]
        yield "clusters and types do not agree", bool((starts == part["type_offsets"]).all())
    if "ranking_tokens" in part and "target_ids" in part:  # a store that only serves may have no entries' tokens
        tokens = part["target_ids"][part["ranking_entries"]]
        yield "ranked tokens are not those of their entries", bool((tokens == part["ranking_tokens"]).all())
