"""backup, restore."""

import json
import subprocess
from pathlib import Path

from .process import COMMAND, fine, knnmt, refused


def test_a_store_is_saved_and_restored(store: Path, tmp_path: Path) -> None:
    archive, again = tmp_path / "store.tar", tmp_path / "again"
    assert "verified" in fine(knnmt("backup", store, archive))
    refused(knnmt("backup", store, archive), 2, "exists already")
    assert json.loads(fine(knnmt("restore", archive, again, "--json")))["segments"] == 200
    refused(knnmt("restore", archive, again), 2, "exists already")
    refused(knnmt("restore", tmp_path / "none.tar", tmp_path / "other"), 2, "no archive")
    assert "is sound" in fine(knnmt("verify", again, "--full"))


def test_a_process_that_has_imported_nothing_else_restores(store: Path, tmp_path: Path) -> None:
    """One of its own: what the forked ones have imported declares the arrays of all systems."""
    archive, again = tmp_path / "store.tar", tmp_path / "again"
    for arguments in (("backup", store, archive), ("restore", archive, again)):
        done = subprocess.run([*COMMAND, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    assert (again / "manifest.json").read_bytes() == (store / "manifest.json").read_bytes()
