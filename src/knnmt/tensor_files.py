"""Files of named arrays (safetensors) that are written as a whole and read with every fault told."""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from knnmt.errors import DataError, UsageError
from knnmt.files import write_whole

Arrays = Mapping[str, NDArray[Any]]


class Kind(NamedTuple):
    """A kind of such files.

    format: what the file says of itself; name: what people call it; again: how to make another one
    """

    format: str
    name: str
    again: str

    def write(self, path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
        """Write a file; equal contents are equal files."""
        write_whole(path, _ordered(save(dict(arrays), {"format": self.format, **metadata})))

    def read(self, path: Path, names: Collection[str]) -> tuple[dict[str, str], dict[str, NDArray[Any]]]:
        """The metadata and the arrays of these names, which can be written to."""
        if not path.is_file():
            raise UsageError(f"{path}: no such {self.name} file; {self.again}")
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata() or {}
                if metadata.get("format") != self.format:
                    raise DataError(f"{path}: no {self.name} file, or one of another version; {self.again}")
                if set(file.keys()) != set(names):
                    raise self.corrupt(path, "other arrays than it should have")
                # Copied: for read-only arrays numba would compile its loops a second time.
                return metadata, {name: np.array(file.get_tensor(name)) for name in names}
        except (SafetensorError, OSError) as error:
            raise self.corrupt(path, str(error)) from error

    def corrupt(self, path: Path, how: str) -> DataError:
        """The error of a file whose contents are wrong."""
        return DataError(f"{path}: corrupt {self.name} file: {how}; {self.again}")


def _ordered(written: bytes) -> bytes:
    """Sort the header of a safetensors file, whose metadata has no order."""
    end = 8 + int.from_bytes(written[:8], "little")
    head = json.dumps(json.loads(written[8:end]), sort_keys=True).encode()
    head += b" " * (-len(head) % 8)  # arrays start at a multiple of 8
    return len(head).to_bytes(8, "little") + head + written[end:]
