"""Stores in other shapes than a build makes: of several parts, and of the first format."""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from knnmt.datastore import Datastore
from knnmt.files import digest
from knnmt.store.manifest import ALIGNER, MANIFEST, aligner_name, aligner_of, journal_name, publish, read_manifest

from ..build.examples import written
from ..oracle import datastore as oracle


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
    publish(folder, manifests[0].model_copy(update=update), made)
    return Datastore.open(folder)


def in_format_1(store: Path) -> None:
    """Make a store of one part what builds once made: the aligner in the part, the journal named after the part."""
    content = json.loads((store / MANIFEST).read_bytes())["knnmt"]
    (part,) = content["parts"]
    aligner, journal = content.pop("aligner"), store / content.pop("journal")
    if aligner is not None:
        (old,) = store.glob("aligner-*")
        old.rename(store / part["name"] / ALIGNER)
        part["files"] = dict(sorted((part["files"] | {ALIGNER: aligner}).items()))
    if journal.exists():
        journal.rename(store / part["name"].replace("part-", "journal-"))
    content["format"] = 1
    own = digest(json.dumps(content).encode())
    signed = json.dumps({"knnmt": content, "checksum": own}, indent=1).encode() + b"\n"
    (store / MANIFEST).write_bytes(signed)
