"""What operating systems do in different ways: as Linux does it, and as Windows would."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from knnmt import host

from .build.examples import parallel_text

WINDOWS = """
import errno, fcntl, os, pkgutil, shutil, signal, sys
import faiss, fastapi, filelock, matplotlib, multiprocessing.pool, prometheus_client, sacrebleu, torch, uvicorn
from transformers import MarianMTModel, MarianTokenizer
torch.set_num_threads(1)

# ---- other libraries know Windows; from here on, this is what ours meets
flags_of = fcntl.fcntl
for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None
for name in ("sched_getaffinity", "getloadavg", "sysconf", "posix_fallocate", "fork", "getuid", "kill"):
    delattr(os, name)
for name in ("SIGPIPE", "SIGHUP", "SIGKILL", "SIGUSR1"):
    delattr(signal, name)
shutil._use_fd_functions = False  # which nothing below would see

def in_use(path):
    place = os.path.realpath(path)
    with open("/proc/self/maps") as maps:
        names = {line.rstrip("\\n").split(None, 5)[-1] for line in maps}
    for number in listdir("/proc/self/fd"):
        try:
            names.add(os.readlink(f"/proc/self/fd/{number}"))
        except OSError:
            pass
    return any(name == place or name.startswith(place + os.sep) for name in names)

def refusing(function):
    def guarded(*paths, **options):
        for path in paths:
            if in_use(path):
                refused.add(os.path.realpath(path))
                raise PermissionError(errno.EACCES, "used by another process", str(path))
        return function(*paths, **options)
    return guarded

refused, listdir = set(), os.listdir
for name in ("unlink", "remove", "rename", "replace", "rmdir"):
    setattr(os, name, refusing(getattr(os, name)))

opened, synced = os.open, os.fsync

def open_file(path, flags, *others, **options):
    if os.path.isdir(path) and flags & os.O_TMPFILE != os.O_TMPFILE:  # which numba looks for its cache with
        raise PermissionError(errno.EACCES, "a folder", str(path))
    return opened(path, flags, *others, **options)

def sync_file(handle):
    if flags_of(handle, 3) & os.O_ACCMODE == os.O_RDONLY:  # F_GETFL
        raise OSError(errno.EBADF, "cannot be written")
    synced(handle)

os.open, os.fsync = open_file, sync_file

# ---- everything imports
import knnmt
from knnmt import host
host.WINDOWS = True
for found in pkgutil.walk_packages(knnmt.__path__, "knnmt."):
    if not found.name.rpartition(".")[2].startswith("triton_"):  # Triton comes with torch for CUDA only
        __import__(found.name)

# ---- a store is built, taught, folded, and translates
from pathlib import Path
from knnmt import Datastore, Segment, Translator
from knnmt.lab.bench.machine import machine
from knnmt.build.settings import BuildSettings
from knnmt.lab.bench.peak import peak
from knnmt.model.checkpoint import load

model, corpus, out = load(sys.argv[1], langs="de-en", device="cpu"), sys.argv[2], Path(sys.argv[3])
settings = BuildSettings(clean=None, cluster_size=8, keys="pq")
store = Datastore.build(corpus, langs="de-en", out=out, model=model, settings=settings)
assert [path.name for path in out.parent.iterdir() if path.name.startswith(out.name)] == [out.name]
translator = Translator(model, store)
text = "Hund Katze im Garten."
translator.translate([text])
for number, target in enumerate(("the tree sleeps", "a cat runs")):
    was = store.parts[0].folder
    mapped = store.parts[0]["target_ids"]  # as a server that translates has it
    translator.add([Segment(text, target, "Ada", "lesson")])
    store.compact(model, full=True)
    assert list(store.verify())
    left = {os.path.realpath(path) for path in out.glob("part-*/*") if path.parent != store.parts[0].folder}
    assert os.path.realpath(was / "target_ids.npy") in left, "what is mapped stays"
    assert left <= refused, "and only that: what could not be removed before has gone"
    refused.clear()
    translator.translate([text])
    del mapped
assert store.find("lesson").target == "a cat runs"
with peak(model.device) as found:
    assert machine(model.device)["cores"] <= os.cpu_count()
assert found.held is not None  # the imitation ends here: this kernel says it
print("done")
"""


def test_a_store_is_built_taught_and_used_where_nothing_of_posix_is(
    model_folder: Callable[[str], Path], tmp_path: Path
) -> None:
    corpus = parallel_text(tmp_path / "corpus.tsv", 20)
    arguments = [str(path) for path in (model_folder("marian"), corpus, tmp_path / "store")]
    done = subprocess.run([sys.executable, "-c", WINDOWS, *arguments], capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_a_lock_is_held_by_one_and_waited_for(tmp_path: Path) -> None:
    with host.lock(tmp_path / "lock") as held:
        assert held is not None
        assert not held.gone
        with host.lock(tmp_path / "lock") as second:
            assert second is None
        begun = time.monotonic()
        with host.lock(tmp_path / "lock", seconds=0.1) as second:
            assert second is None
        assert time.monotonic() - begun >= 0.1
    with host.lock(tmp_path / "lock") as held:
        assert held is not None


def test_a_removed_lock_is_of_no_use_to_whoever_had_it_open(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with path.open("ab") as late:
        with host.lock(path) as held:
            assert held is not None
            held.remove()
            assert held.gone
        assert not path.exists()
        assert host.Lock(path, late).gone


def test_a_lock_that_cannot_be_removed_while_it_is_open_goes_after_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, unlink = tmp_path / "lock", Path.unlink

    def refused(place: Path, missing_ok: bool = False) -> None:
        raise PermissionError

    with host.lock(path) as held:
        assert held is not None
        monkeypatch.setattr(Path, "unlink", refused)
        held.remove()
        monkeypatch.setattr(Path, "unlink", unlink)
        assert path.exists()
    assert not path.exists()


def test_a_file_that_is_being_read_is_replaced_when_it_was_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading, replace = threading.Event(), Path.replace
    reading.set()
    threading.Timer(0.1, reading.clear).start()

    def refused(source: Path, target: Path) -> Path:
        if reading.is_set():
            raise PermissionError
        return replace(source, target)

    monkeypatch.setattr(Path, "replace", refused)
    (tmp_path / "new").write_text("new", encoding="utf-8")
    (tmp_path / "old").write_text("old", encoding="utf-8")
    host.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text(encoding="utf-8") == "new"
    reading.set()
    monkeypatch.setattr(host, "PATIENCE", 0.05)
    (tmp_path / "new").touch()
    with pytest.raises(PermissionError):
        host.replace(tmp_path / "new", tmp_path / "old")


def test_room_is_reserved_where_the_system_has_no_call_for_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("os.posix_fallocate", raising=False)
    with (tmp_path / "file").open("wb") as file:
        file.write(b"head")
        file.flush()
        host.reserve(file, 4, 100)
    assert (tmp_path / "file").read_bytes() == b"head" + bytes(100)


@pytest.mark.parametrize(("quota", "cores"), [("max 100000", 8), ("150000 100000", 2), ("50000 100000", 1), ("", 8)])
def test_cores_are_those_of_the_affinity_and_the_quota(
    quota: str, cores: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(8), raising=False)
    monkeypatch.setattr(host, "CPU_MAX", tmp_path / "cpu.max")
    if quota:
        (tmp_path / "cpu.max").write_text(quota)
    assert host.cores() == cores
