"""Stores in other shapes than a build makes: of several parts, and of older formats."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from knnmt.datastore import Datastore
from knnmt.store import arrays
from knnmt.store.manifest import ALIGNER, aligner_name, aligner_of, journal_name, publish, read_manifest, seal
from knnmt.store.memories import Memories

from ..build.examples import written
from ..oracle import datastore as oracle
from .forging import content_of, forge


def of_one_part(folder: Path, seed: int, counts: Sequence[int]) -> list[Path]:
    """Random stores of one part each, with so many segments."""
    rng = np.random.default_rng(seed)
    found = []
    for number, count in enumerate(counts):
        segments = oracle.random_segments(rng, count=count, types=4, width=4)
        arrays = oracle.build(segments, oracle.random_clusters(rng, segments), 5, 7)
        found.append(written(arrays, folder / f"one-{number}", vocabulary=5, k_max=7).path)
    return found


def joined(folder: Path, paths: Sequence[Path]) -> Datastore:
    """One store of copies of all parts of some stores, in their order; with the aligner of the first."""
    manifests = [read_manifest(path) for path in paths]
    made: dict[str, Path] = {}
    for path, manifest in zip(paths, manifests, strict=True):
        for part in manifest.parts:
            made[part.name] = shutil.copytree(path / part.name, folder.parent / f"{folder.name}-{part.name}")
    aligner = aligner_of(paths[0], manifests[0])
    if aligner is not None:
        made[aligner_name(aligner[1])] = Path(shutil.copy(aligner[0], folder.parent / f"{folder.name}-aligner"))
    parts = [part for manifest in manifests for part in manifest.parts]
    update = {"parts": parts, "journal": journal_name(parts), "kept": sum(manifest.kept for manifest in manifests)}
    update["scale"] = Memories.open(paths).scale
    publish(folder, manifests[0].model_copy(update=update), made)
    return Datastore.open(folder)


def in_format_1(store: Path) -> None:
    """Make a store of one part, in which nothing was taught, what builds once made: the aligner in the part, the
    journal named after the part, narrow keys as in format 2."""
    if "target_numbers" in content_of(store)["parts"][0]["sizes"]:
        in_format_2(store)
    content = content_of(store)
    (part,) = content["parts"]
    aligner, journal = content.pop("aligner"), store / content.pop("journal")
    if aligner is not None:
        (old,) = store.glob("aligner-*")
        old.rename(store / part["name"] / ALIGNER)
        part["files"] = dict(sorted((part["files"] | {ALIGNER: aligner}).items()))
    if journal.exists():
        journal.rename(store / part["name"].replace("part-", "journal-"))
    forge(store, content | {"format": 1})


def in_format_2(store: Path) -> None:
    """Make a store of one part, in which nothing was taught, what builds once made: a number in each byte of a narrow
    key."""
    (part,) = read_manifest(store).parts
    folder = store / part.name
    halves = np.array(arrays.read(folder / "small_target.npy"))
    numbers = ((np.stack((halves & 15, halves >> 4 & 15), axis=2) ^ 8) - 8).reshape(len(halves), -1)
    arrays.write(folder / "small_target.npy", numbers.astype(np.int8))
    sizes = {name: size for name, size in part.sizes.items() if name != "target_numbers"}
    sealed = seal(folder, sizes | {"target_small": numbers.shape[1]})
    folder.rename(store / sealed.name)
    parts, journal = [sealed.model_dump(mode="json")], journal_name([sealed])
    forge(store, content_of(store) | {"format": 2, "parts": parts, "journal": journal})
