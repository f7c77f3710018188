"""A small store with every kind of file, to be damaged."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from knnmt.datastore import Datastore
from knnmt.store import arrays
from knnmt.store.manifest import INDEX, aligner_name, seal_file
from knnmt.store.schema import ARRAYS

from ..build.examples import written
from ..oracle import datastore as oracle
from ..oracle import prototypes, similar
from .forging import VOCABULARY, WIDTH, content_of, forge, reseal


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small store with every kind of file: arrays, codes of a product quantizer, an aligner, an index."""
    rng = np.random.default_rng(4)
    segments = oracle.random_segments(rng, count=12, types=VOCABULARY - 1, width=WIDTH)
    plain = oracle.build(segments, oracle.random_clusters(rng, segments), VOCABULARY, 7)
    assert len(plain["link_entries"]) > 20
    assert len(plain["cluster_source"]) > 5
    plain |= prototypes.gathered(plain, 2)
    projection = rng.normal(size=(WIDTH, 3)).astype(np.float32)
    plain |= similar.gathered(plain, {"source": projection, "target": projection})
    plain["cluster_members"] = np.arange(len(plain["source_keys"]), dtype=np.int32)  # the oracle has them by cluster
    plain["type_segments"] = np.zeros(VOCABULARY, np.int32)
    folder = tmp_path_factory.mktemp("sound") / "store"
    written(plain, folder, vocabulary=VOCABULARY, k_max=7, quantized=True)

    def complete(part: Path) -> None:
        for side in ("target", "source"):
            arrays.write(part / f"{side}_keys.npy", plain[f"{side}_keys"])
        segments, links = len(plain["target_offsets"]) - 1, len(plain["link_entries"])
        arrays.write(part / "given_offsets.npy", np.array([0] * segments + [links]))
        arrays.write(part / "given_links.npy", np.zeros((links, 2), np.int32))
        arrays.write(part / "cluster_members.npy", np.arange(len(plain["source_keys"]), dtype=np.int32))
        arrays.write(part / "type_segments.npy", np.zeros(VOCABULARY, np.int32))
        (part / INDEX).write_bytes(rng.bytes(300))

    reseal(folder, complete)
    (folder / "aligner").write_bytes(rng.bytes(300))
    aligner = seal_file(folder / "aligner")
    (folder / "aligner").rename(folder / aligner_name(aligner))
    forge(folder, content_of(folder) | {"aligner": aligner.model_dump(mode="json")})
    assert {name.removesuffix(".npy") for name in Datastore.open(folder).parts[0].files} == {*ARRAYS, INDEX}
    return folder


@pytest.fixture
def copied(sound: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return shutil.copytree(sound, tmp_path / "store")
