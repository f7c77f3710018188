"""A build gives the same bytes whatever the number of workers, and goes on where it was stopped."""

import fcntl
import logging
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from knnmt.build import cut
from knnmt.build.build import build
from knnmt.errors import UsageError
from knnmt.model.checkpoint import Model

from .small import PAIRS, SETTINGS, Stop, files, settings


def test_the_number_of_workers_changes_no_byte(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shards of one batch, so that all workers have some."""
    monkeypatch.setattr(cut, "RUN", 1)
    for workers in (1, 2, 5):
        out = tmp_path / f"store{workers}"
        build([corpus], model, out, "de-en", settings(batch_tokens=64, keys="pq"), workers=workers)
        assert files(out) == files(tmp_path / "store1")


def test_a_build_leaves_torch_the_threads_it_had(model: Model, corpus: Path, tmp_path: Path) -> None:
    def threads() -> list[int]:
        with ThreadPoolExecutor(1) as pool:
            return [torch.get_num_threads(), pool.submit(torch.get_num_threads).result()]

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
        assert threads() == [3, 3]
    finally:
        torch.set_num_threads(before)


def test_progress_adds_up(model: Model, corpus: Path, tmp_path: Path) -> None:
    done: dict[str, int] = defaultdict(int)
    whole: dict[str, int | None] = {}

    def progress(stage: str, some: int, total: int | None) -> None:
        assert some >= 0
        done[stage] += some
        assert whole.setdefault(stage, total) == total

    report = build([corpus], model, tmp_path / "store", "de-en", settings(keys="pq"), progress=progress)
    assert list(whole) == ["read", "align", "link", "represent", "cluster", "prototypes", "similar", "keys"]
    assert {stage: done[stage] for stage in whole if whole[stage] is not None} == {
        stage: total for stage, total in whole.items() if total is not None
    }
    assert list(report.seconds) == [
        "read", "align", "link", "join", "count", "cut", "represent", "scale", "project", "cluster", "prototypes",
        "similar", "keys", "seal",
    ]  # fmt: skip


def test_two_builds_do_not_work_in_one_folder(model: Model, corpus: Path, built: Path, tmp_path: Path) -> None:
    refused = []

    def progress(stage: str, some: int, total: int | None) -> None:
        if stage not in refused:
            refused.append(stage)
            with pytest.raises(UsageError, match="another build is running in"):
                build([corpus], model, tmp_path / "store", "de-en", SETTINGS)

    build([corpus], model, tmp_path / "store", "de-en", SETTINGS, progress=progress)
    assert refused == ["read", "align", "link", "represent", "cluster", "prototypes", "similar", "keys"]
    assert files(tmp_path / "store") == files(built)


def test_the_work_folder_of_a_build_that_ended_meanwhile_is_not_taken(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between opening the lock and having it, another build may finish and remove the folder."""
    lock = fcntl.flock

    def late(file: Any, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        (tmp_path / "store.building" / "lock").unlink()
        lock(file, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UsageError, match="another build"):
        build([corpus], model, tmp_path / "store", "de-en", SETTINGS)


def test_what_a_build_with_other_settings_left_is_not_used(
    model: Model, corpus: Path, built: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def stop(stage: str, some: int, total: int | None) -> None:
        if stage == "cluster":
            raise Stop

    with pytest.raises(Stop):
        build([corpus], model, tmp_path / "store", "de-en", settings(key="output"), progress=stop)
    with caplog.at_level(logging.WARNING):
        report = build([corpus], model, tmp_path / "store", "de-en", SETTINGS)
    assert "starting again" in caplog.text
    assert "read" in report.seconds
    assert files(tmp_path / "store") == files(built)


def test_a_journal_whose_last_line_was_cut_off_names_no_other_shard(
    model: Model, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A crash of the machine may leave half a line; what is written next must not become its other half."""
    monkeypatch.setattr(cut, "RUN", 1)
    monkeypatch.setattr("knnmt.build.represent.SYNC_SECONDS", 0.0)
    chosen = settings(batch_tokens=64)

    def stop(stage: str, some: int, total: int | None) -> None:
        if stage == "represent" and some:
            raise Stop

    journal = tmp_path / "store.building" / "part-0" / "represented"
    for _ in range(2):
        with pytest.raises(Stop):
            build([corpus], model, tmp_path / "store", "de-en", chosen, workers=1, progress=stop)
        with journal.open("a") as file:
            file.write("99")
    *lines, _ = journal.read_text().split("\n")
    assert len(lines) > 1
    assert all(int(line) < PAIRS for line in lines)
    build([corpus], model, tmp_path / "store", "de-en", chosen)
    build([corpus], model, tmp_path / "other", "de-en", chosen)
    assert files(tmp_path / "store") == files(tmp_path / "other")
