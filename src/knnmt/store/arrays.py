"""Arrays as `.npy` files: written whole, row by row, or in place, and mapped into memory to be read."""

from io import BytesIO
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray

from knnmt import host

Rows = NDArray[Any]


def header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The beginning of the file of an array; as long for any number of rows."""
    written = BytesIO()
    descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
    np.lib.format.write_array_header_1_0(written, {"descr": descr, "fortran_order": False, "shape": shape})
    return written.getvalue()


def mapped(path: Path, dtype: str, shape: tuple[int, ...], mode: Any) -> NDArray[Any]:
    """Map the numbers of an array's file; mode is that of `np.memmap`."""
    if 0 in shape:
        return np.empty(shape, dtype)  # nothing to map
    return np.memmap(path, dtype, mode=mode, offset=len(header(dtype, shape)), shape=shape)


def read(path: Path, mode: Literal["r", "c"] = "r") -> NDArray[Any]:
    """Map an array that this program wrote a moment ago, to be read only; "c" is for code that takes no such array."""
    return np.load(path, mmap_mode=mode, allow_pickle=False)  # type: ignore[no-any-return]


def write(path: Path, array: NDArray[Any]) -> None:
    """Write an array. By the file's own `write`: that of NumPy does not say why a disk takes no more."""
    whole = np.ascontiguousarray(array)
    with path.open("wb") as file:
        file.write(header(whole.dtype.str, whole.shape))
        file.write(whole.data)


def create(path: Path, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Make an array of zeros on disk, to be filled in place.

    Its room is reserved at once: a disk that is too small says so here, not by a signal in the midst of the work.
    """
    head = header(dtype, shape)
    with path.open("wb") as file:
        file.write(head)
        file.flush()
        size = int(np.prod(shape, dtype=object)) * np.dtype(dtype).itemsize
        if size:
            host.reserve(file, len(head), size)
    return mapped(path, dtype, shape, "r+")


class Stream:
    """An array that is written as its rows come; their number is known at the end."""

    def __init__(self, path: Path, dtype: str) -> None:
        self.dtype, self.rows = dtype, 0
        self._file = path.open("wb")
        self._head = header(dtype, (0,))
        self._file.write(self._head)

    def extend(self, values: Any) -> None:
        """Add rows: numbers, or bytes of an array of bytes."""
        some = np.frombuffer(values, self.dtype) if isinstance(values, bytes) else np.asarray(values, self.dtype)
        self._file.write(some.tobytes())
        self.rows += len(some)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._file:
            head = header(self.dtype, (self.rows,))
            if len(head) != len(self._head):
                raise AssertionError("the header of an array must not grow with it")
            self._file.seek(0)
            self._file.write(head)
