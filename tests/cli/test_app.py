"""What all commands have in common."""

import errno
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from knnmt import host, terminal
from knnmt.cli.app import ORDER, use_threads
from knnmt.errors import writing_to
from knnmt.systems.table import SYSTEMS

from .process import COMMAND, fine, knnmt


def test_help_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "rich", "pydantic", "lxml", "numpy")
    loaded = subprocess.run(
        [sys.executable, "-c", f"import sys, knnmt.cli; print([m for m in {heavy} if m in sys.modules])"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert loaded.stdout.strip() == "[]"
    listed = fine(knnmt("--help"))
    assert [name for name in ORDER if f"\n  {name} " not in listed] == []


@pytest.mark.parametrize("command", ORDER)
def test_help_is_quick(command: str) -> None:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    asked = [command, "check"] if command == "glossary" else [command]
    done = subprocess.run([*COMMAND, *asked, "--help"], capture_output=True, text=True, check=True, timeout=60)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert spent < 0.5  # of a processor: what an idle machine takes, whatever else runs here
    assert "--json" in done.stdout
    assert not set(re.findall(r"[\w-]+", done.stdout)) & set(SYSTEMS)  # none is listed by hand


def test_version() -> None:
    assert knnmt("--version").stdout.startswith("knnmt 0.")


def test_unknown_options_are_wrong_use() -> None:
    assert knnmt("translate", "--bem", "3").returncode == 2
    assert knnmt("transalte").returncode == 2


def test_brackets_in_names_are_no_markup(tmp_path: Path) -> None:
    odd = tmp_path / "h[red]y[.en"
    odd.write_text("the dog\n")
    done = knnmt("evaluate", odd, odd)
    assert done.returncode == 0, done.stderr
    assert "h[red]y[.en" in done.stdout


def test_a_full_disk_is_told_with_its_place_and_what_is_free(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No space") as caught, writing_to(tmp_path / "x", "what is done is kept"):
        raise OSError(errno.ENOSPC, "No space left on device")
    line = terminal.told(caught.value)
    assert line.startswith(f"No space left on device: {tmp_path / 'x'} (")
    assert " free on the file system at /" in line
    assert line.endswith("; what is done is kept")


@pytest.mark.parametrize(("asked", "cores", "used"), [(None, 64, 16), (None, 4, 4), (40, 64, 40), (1, 4, 1)])
def test_threads(asked: int | None, cores: int, used: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """All cores by default, but no more than a decoding step can use."""
    found: list[int] = []
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    monkeypatch.setattr(torch, "set_num_threads", found.append)
    monkeypatch.setattr(host, "cores", lambda: cores)
    use_threads(asked)
    assert found == [used]
