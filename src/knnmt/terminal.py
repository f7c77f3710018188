"""Input and output of commands: files, progress bars, tables."""

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from knnmt import encoding
from knnmt.errors import FULL, DataError, UsageError, writing_to
from knnmt.files import put

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

STDOUT = "standard output"
WIDE = 160  # columns, if the output is not a terminal


@contextlib.contextmanager
def reading(path: Path | None) -> Iterator[IO[bytes]]:
    """The bytes of a file, or of standard input."""
    if path is None or str(path) == "-":
        yield sys.stdin.buffer
        return
    try:
        source = path.open("rb")
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from error
    with source:
        yield source


def require_writable(path: Path, *inputs: Path | None) -> None:
    """Refuse a path that cannot be written, or that is an input."""
    if path.is_dir() or not path.parent.is_dir():
        raise UsageError(f"cannot write {path}: " + ("it is a folder" if path.is_dir() else f"no folder {path.parent}"))
    if any(given is not None and given.exists() and path.exists() and path.samefile(given) for given in inputs):
        raise UsageError(f"{path} is an input: write to another file")


@contextlib.contextmanager
def writing(path: Path | None, *inputs: Path | None) -> Iterator[IO[str]]:
    """A file, or standard output, in UTF-8 whatever the locale.

    A file is written to a temporary neighbour and moved into place at the end; until then an old file stays.
    """
    if path is None or str(path) == "-":
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
        with writing_to(Path(STDOUT)):
            yield sys.stdout
            sys.stdout.flush()
        return
    require_writable(path, *inputs)
    part = path.with_name(path.name + ".part")
    try:
        out = part.open("w", encoding="utf-8", newline="\n")
    except OSError as error:
        raise UsageError(f"cannot write {part}: {error.strerror}") from error
    try:
        with writing_to(part, f"what was written so far is in {part}"), out:
            yield out
        put(part, path)
    finally:
        if part.exists() and not part.stat().st_size:
            part.unlink()  # a failure leaves what was written so far, if anything


def lines_of(source: IO[bytes], path: Path | None) -> Iterator[str]:
    """Lines of a file or of standard input, without line ends; invalid UTF-8 is refused with its line number."""
    name = "standard input" if path is None or str(path) == "-" else str(path)
    place = None if name == "standard input" else path
    for number, line in enumerate(source, start=1):
        if number == 1 and (mark := encoding.marked(line)) is not None:
            raise DataError(f"{name}: it is {mark}, by its byte order mark; {encoding.convert(mark, place)}")
        if (reason := encoding.why_no_text(line)) is not None:
            raise DataError(f"{name}, line {number}: {reason}; {encoding.refusal(line, place)}")
        yield line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")


def read_lines(path: Path) -> list[str]:
    """All lines of a file."""
    with reading(path) as source:
        return list(lines_of(source, path))


@contextlib.contextmanager
def bar(label: str, total: int | None = None, *, quiet: bool = False) -> Iterator[Callable[[int], None] | None]:
    """A progress bar on standard error, if that is a terminal: a function to call with the work done since."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"), progress.BarColumn(), progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[rate]}"), progress.TimeElapsedColumn(), progress.TimeRemainingColumn(),
    )  # fmt: skip
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(label, total=total, rate="")

        def advance(done: int) -> None:
            shown.advance(task, done)
            speed = shown.tasks[0].finished_speed or shown.tasks[0].speed
            shown.update(task, rate=f"{speed:,.1f}/s" if speed else "")

        yield advance


@contextlib.contextmanager
def stages() -> Iterator[Callable[[str, int, int | None], None] | None]:
    """A progress bar per stage: a function to call with the stage, the work done since, and the total."""
    with contextlib.ExitStack() as stack:
        bars: dict[str, Callable[[int], None] | None] = {}

        def advance(stage: str, done: int, total: int | None) -> None:
            if stage not in bars:
                stack.close()  # the previous stage is done
                bars[stage] = stack.enter_context(bar(f"{stage:<10}", total))
            moved = bars[stage]
            if moved is not None:
                moved(done)

        yield advance if sys.stderr.isatty() else None


def told(error: OSError) -> str:
    """An OSError in one line: the path, and for a full disk, which one and how much is free."""
    message = error.strerror or str(error)
    if error.filename:
        message += f": {error.filename}"
    if error.filename and error.errno in FULL and error.filename != STDOUT:
        path = Path(error.filename).absolute()
        mount = next(place for place in (path, *path.parents) if place.is_mount())
        message += f" ({size(shutil.disk_usage(mount).free)} free on the file system at {mount})"
    return "; ".join([message, *getattr(error, "__notes__", ())])


def note(message: str) -> None:
    """A note on standard error, for what is worth knowing but no error."""
    sys.stderr.write(f"note: {message}\n")
    sys.stderr.flush()


def unused_terms(told: Sequence[str], most: int = 20) -> None:
    """A note on the terms of a glossary that translations do not use, the first of them listed."""
    for line in told[:most]:
        note(f"not used: {line}")
    if told:
        note(f"{counted(len(told), 'term')} not used")


def size(count: float) -> str:
    """A number of bytes, human-readable."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError


def counted(count: int, noun: str) -> str:
    """A number and its noun, in the singular or plural."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def watched(items: Iterable[Any], label: str) -> Iterator[Any]:
    """The items, counted by a progress bar."""
    with bar(label) as advance:
        for number, item in enumerate(items, start=1):
            if advance is not None and number % 1000 == 0:
                advance(1000)
            yield item


def count_lines(source: IO[bytes]) -> int | None:
    """The number of lines left, if a progress bar is shown and the input can be rewound."""
    if not (sys.stderr.isatty() and source.seekable()):
        return None
    start, lines, last = source.tell(), 0, b"\n"
    while block := source.read(1 << 20):
        lines, last = lines + block.count(b"\n"), block[-1:]
    source.seek(start)
    return lines + (last != b"\n")


def table(*heads: str, numbers: Collection[str] = ()) -> "Table":
    """An empty table with these heads; columns in `numbers` are right-aligned and never wrapped."""
    from rich import box
    from rich.table import Table

    made = Table(box=box.SIMPLE_HEAD)
    for head in heads:
        if head in numbers:
            made.add_column(head, justify="right", no_wrap=True)
        else:
            made.add_column(head, overflow="fold")
    return made


def width() -> int:
    """The columns of the terminal."""
    return _console().width


def show(table: "Table") -> None:
    """Print a table."""
    _console().print(table)


def _console() -> "Console":
    """Standard output; wide enough for every number if it is not a terminal."""
    from rich.console import Console

    console = Console(markup=False, highlight=False)  # names and texts may hold brackets
    if not console.is_terminal and "COLUMNS" not in os.environ:
        console.width = WIDE
    return console
