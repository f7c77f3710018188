"""Loops that numba compiles for the CPU, on first call: importing them imports neither numba nor LLVM."""

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from knnmt.errors import MissingExtraError

Function = TypeVar("Function", bound=Callable[..., Any])
_creating = threading.RLock()


def jit(**options: Any) -> Callable[[Function], Function]:
    """Compile a function on first call, cache the machine code on disk, and release the GIL while it runs."""

    def decorate(function: Function) -> Function:
        return functools.update_wrapper(_Loop(function, options), function)  # type: ignore[return-value]

    return decorate


def intrinsic(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that writes LLVM's instructions (`numba.extending.intrinsic`), for compiled functions to call."""
    return _Intrinsic(function)


class _Intrinsic:
    """An intrinsic that is registered with numba when a function that calls it is compiled."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        raise NotImplementedError(f"{self._function.__name__} can only be called by compiled functions")

    @functools.cached_property
    def _numba_type_(self) -> Any:
        """The type that numba asks for where a compiled function calls this one."""
        from numba.core.registry import cpu_target
        from numba.extending import intrinsic as registered

        made = registered(prefer_literal=True)(self._function)
        cpu_target.typing_context.refresh()
        return cpu_target.typing_context.resolve_value_type(made)


class _Loop:
    """A function that numba compiles when it is first called, from Python or from another compiled function."""

    def __init__(self, function: Callable[..., Any], options: dict[str, Any]) -> None:
        self._function, self._options = function, {"nogil": True, "error_model": "numpy"} | options
        self._created: Any = None

    def __call__(self, *arguments: Any) -> Any:
        return self._dispatcher(*arguments)

    @property
    def _numba_type_(self) -> Any:
        """The type that numba asks for where another compiled function calls this one."""
        return self._dispatcher._numba_type_

    def cached(self) -> bool:
        """Whether machine code that is newer than its source is on disk."""
        folder, source = self._dispatcher.stats.cache_path, Path(self._function.__code__.co_filename)
        found = Path(folder).glob(f"*.{self._function.__qualname__}-*.nbi") if folder is not None else ()
        written = source.stat().st_mtime if source.exists() else 0.0
        return any(index.stat().st_mtime >= written for index in found)

    @property
    def _dispatcher(self) -> Any:
        if self._created is None:
            with _creating:  # two would compile twice
                self._created = self._created or self._create()
        return self._created

    def _create(self) -> Any:
        if not threading.main_thread().is_alive():  # nobody needs what would be compiled now
            raise RuntimeError("the process is ending")
        try:
            import numba
        except ModuleNotFoundError as error:
            raise MissingExtraError("compiled loops need numba, which is not installed: pip install numba") from error
        try:
            return numba.njit(cache=True, **self._options)(self._function)
        except RuntimeError:  # no writable cache directory: compile in every process
            return numba.njit(**self._options)(self._function)
