"""Stage `seal`: what no system needs is removed from a part, and the rest is described."""

import json
from collections.abc import Mapping
from pathlib import Path

from knnmt import files
from knnmt.build.context import Context
from knnmt.build.stages import kept
from knnmt.store import manifest, schema


def seal_part(context: Context, known: Mapping[str, int]) -> None:
    """Seal a part; `known` are sizes that all parts of its store have, whether its arrays tell them or not."""
    architecture = context.model.transformer.architecture
    sizes_file = _beside(context.folder, "sizes")
    if not sizes_file.exists():  # once this is written, arrays may be gone
        sizes = {
            **known,
            "source_vocabulary": architecture.source_vocabulary,
            "target_vocabulary": architecture.target_vocabulary,
        }
        files.write_whole(sizes_file, json.dumps(schema.sizes_of(context.folder, sizes)).encode())
    names = kept(context.settings)
    for path in context.folder.iterdir():
        if path.name not in names and not (path.suffix == ".npy" and path.stem in names):
            path.unlink()
    sealed = manifest.seal(context.folder, json.loads(sizes_file.read_bytes()))
    files.write_whole(_beside(context.folder, "sealed"), sealed.model_dump_json().encode())


def sealed_part(folder: Path) -> manifest.SealedPart:
    """What `seal_part` wrote."""
    return manifest.SealedPart.model_validate_json(_beside(folder, "sealed").read_bytes())


def _beside(folder: Path, kind: str) -> Path:
    return folder.with_name(f"{folder.name}.{kind}")
