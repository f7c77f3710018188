"""How a store is damaged, or made to do harm, with checksums that fit."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from knnmt.datastore import Datastore
from knnmt.files import digest
from knnmt.store.manifest import INDEX, MANIFEST, seal
from knnmt.store.schema import ARRAYS

VOCABULARY, WIDTH = 5, 4  # of the store that is damaged


def part_of(store: Path) -> Path:
    (part,) = store.glob("part-*")
    return part


def aligner_in(store: Path) -> Path:
    (aligner,) = store.glob("aligner-*")
    return aligner


def content_of(store: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((store / MANIFEST).read_bytes())["knnmt"]
    return content


def forge(store: Path, content: Any) -> None:
    """Write a manifest with a fitting checksum, whatever it says: who means harm can compute one too."""
    own = digest(json.dumps(content).encode())
    signed = json.dumps({"knnmt": content, "checksum": own}, indent=1).encode() + b"\n"
    (store / MANIFEST).write_bytes(signed)


def reseal(store: Path, change: Callable[[Path], object], **sizes: int) -> None:
    """Change the files of a part, and then make all checksums fit."""
    content, part = content_of(store), part_of(store)
    change(part)
    sealed = seal(part, content["parts"][0]["sizes"]).model_dump(mode="json")
    part.rename(store / sealed["name"])
    forge(store, content | {"parts": [sealed | {"sizes": sealed["sizes"] | sizes}]})


def verify(store: Path) -> list[str]:
    return list(Datastore.open(store).verify())


def touch(folder: Path) -> None:
    """Use a store without verifying it: open everything it has."""
    store = Datastore.open(folder)
    for name in ARRAYS:
        if name in store.parts[0]:
            np.asarray(store.parts[0][name]).sum()
    assert len(list(store.segments())) == len(store)
    store.where(np.arange(store.sizes["entries"]))
    store.parts[0].file(INDEX)
