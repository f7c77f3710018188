"""Stores on disk, in the true format, from arrays that were made by hand or by the oracle; and texts to build from."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import torch

from knnmt.build import pq
from knnmt.datastore import Datastore
from knnmt.search.pq import decode
from knnmt.settings import Metric
from knnmt.store import arrays, digests
from knnmt.store.manifest import Manifest, journal_name, publish, seal
from knnmt.store.schema import sizes_of

from ..oracle.datastore import Store

FIELDS = 4  # of a segment: source, target, origin, id


def written(
    store: Store, folder: Path, *, vocabulary: int, k_max: int | None = None, metric: Metric = "squared",
    quantized: bool = False, **fields: Any,
) -> Datastore:  # fmt: skip
    """Write a store of these arrays; the texts of its segments are just numbers."""
    segments = len(store["target_offsets"]) - 1
    texts = [f"{kind} {number}".encode() for number in range(segments) for kind in ("source", "target", "at", "id")]
    text = {
        "text": np.frombuffer(b"".join(texts), np.uint8),
        "text_offsets": np.cumsum([0, *map(len, texts)]),
        "coarse_offsets": np.zeros(len(store["type_offsets"]), np.int64),
        "coarse_ranges": np.zeros((0, 2), np.int64),
        "coarse_source": np.zeros((0, store["target_keys"].shape[1]), np.float16),
    }
    for side in ("source", "target"):
        found = digests.index(digests.digest(f"{side} {number}") for number in range(segments))
        text[f"{side}_digests"], text[f"{side}_order"] = found
    content = text | store
    width = store["target_keys"].shape[1]
    subspaces = pq.subspaces(width)
    if quantized:
        for side in ("target", "source"):
            keys = content.pop(f"{side}_keys")
            codebooks = pq.train(keys, subspaces=subspaces)
            content[f"{side}_codebooks"] = codebooks
            content[f"{side}_codes"] = np.zeros((len(keys), subspaces), np.uint8)
            pq.encode(keys, codebooks, content[f"{side}_codes"])
    for side in ("target", "source"):
        keys = store[f"{side}_keys"].astype(np.float32)
        if quantized:
            stored = (torch.from_numpy(content[f"{side}_{name}"]) for name in ("codes", "codebooks"))
            keys = decode(*stored).numpy()
        content[f"{side}_norms"] = np.square(keys).sum(axis=1)
    part = folder.with_name(f"{folder.name}.part")
    part.mkdir(parents=True)
    for name, array in content.items():
        arrays.write(part / f"{name}.npy", array)
    sizes = {"width": width, "source_vocabulary": len(store["type_offsets"]) - 1, "target_vocabulary": vocabulary}
    parts = [seal(part, sizes_of(part, sizes))]
    described: dict[str, Any] = {
        "made_by": "a test", "plan": "", "model": "none", "model_fingerprint": "", "tokenizer_fingerprint": "",
        "languages": "de-en", "key": "ffn_input", "metric": metric, "scale": 1.0, "settings": {"k_max": k_max},
        "kept": segments, "dropped": {}, "frequent_types": [], "parts": parts,
        "aligner": None, "journal": journal_name(parts),
    }  # fmt: skip
    publish(folder, Manifest(**described | fields), {parts[0].name: part})
    return Datastore.open(folder)


GERMAN = "der die das ein eine Haus Hund Katze Baum Garten läuft schläft sieht groß klein und im".split()
ENGLISH = "the the the a a house dog cat tree garden runs sleeps sees big small and in".split()


def parallel_text(path: Path, count: int, seed: int = 0) -> Path:
    """Write pairs of the tiny models' words, translated word by word and at times in another order, as TSV."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8") as file:
        for number in range(count):
            words = rng.choices(range(len(GERMAN)), k=rng.randint(2, 8))
            moved = sorted(range(len(words)), key=lambda place: place + rng.choice([0, 0, 0, 1.5]))
            source, target = (GERMAN[word] for word in words), (ENGLISH[words[place]] for place in moved)
            file.write(f"{' '.join(source)} .\t{' '.join(target)} .\t{number}\n")
    return path
