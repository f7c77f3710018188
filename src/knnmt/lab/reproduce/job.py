"""A domain at work: what its steps share, and how each keeps its result with a digest of its inputs, so that an
experiment is resumable.
"""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from knnmt.corpus import Segment
from knnmt.decode.settings import TranslateSettings
from knnmt.errors import DataError
from knnmt.files import digest, write_whole
from knnmt.lab.reproduce.config import Config, Domain
from knnmt.model.checkpoint import Model

_log = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]
"""Called with a step's name, the work done since the last call, and the whole of it where that is known."""
Record = TypeVar("Record", bound=BaseModel)


@dataclass(frozen=True)
class Job:
    """A domain at work: its folder of results, its texts, and what all steps need."""

    config: Config
    domain: Domain
    data: Path
    folder: Path
    model: Model
    dev: list[Segment]
    test: list[Segment]
    progress: Progress
    jobs: int | None

    def watch(self, step: str) -> Progress:
        """What a part of a step calls with its stage, the work done, and the whole of it."""
        return lambda stage, done, total: self.progress(f"{self.domain.name}: {step} {stage}".rstrip(), done, total)


def search_alone(beam: int, batch_size: int | None) -> TranslateSettings:
    """How systems are measured: by the engine, on lines as they are, whatever the store has word for word."""
    return TranslateSettings(beam=beam, batch_size=batch_size, exact=False, spans=False, sentences=False)


def recall(path: Path, kind: type[Record], digest: str | None = None) -> Record | None:
    """What a step left, if it is there, whole, and made from the same."""
    if not path.exists():
        return None
    try:
        found = kind.model_validate_json(path.read_bytes())
    except ValidationError:
        raise DataError(f"{path} is corrupt or from another version of knnmt: remove it to make it again") from None
    if digest is not None and getattr(found, "digest", None) != digest:
        _log.info("%s is out of date: making it again", path)
        return None
    return found


def keep(path: Path, made: Record) -> Record:
    """Write what a step made."""
    write_whole(path, as_json(made.model_dump(mode="json")))
    return made


def parsed(path: Path) -> dict[str, Any]:
    """The object in a JSON file."""
    try:
        content = json.loads(path.read_bytes())
    except ValueError:
        content = None
    if not isinstance(content, dict):
        raise DataError(f"{path} is corrupt: remove it to make it again")
    return content


def as_json(content: object) -> bytes:
    """What a JSON file holds."""
    return (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode()


def digest_of(*content: object) -> str:
    """A digest of the inputs of a step."""
    return digest(json.dumps(content, sort_keys=True).encode())


def texts_of(segments: Sequence[Segment]) -> list[list[str]]:
    """Both sides of segments, for a digest."""
    return [[segment.source, segment.target] for segment in segments]
