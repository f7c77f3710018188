"""backup, restore."""

import json
from pathlib import Path

from .process import fine, knnmt, refused


def test_a_store_is_saved_and_restored(store: Path, tmp_path: Path) -> None:
    archive, again = tmp_path / "store.tar", tmp_path / "again"
    assert "verified" in fine(knnmt("backup", store, archive))
    refused(knnmt("backup", store, archive), 2, "exists already")
    assert json.loads(fine(knnmt("restore", archive, again, "--json")))["segments"] == 200
    refused(knnmt("restore", archive, again), 2, "exists already")
    refused(knnmt("restore", tmp_path / "none.tar", tmp_path / "other"), 2, "no archive")
    assert "is sound" in fine(knnmt("verify", again, "--full"))
