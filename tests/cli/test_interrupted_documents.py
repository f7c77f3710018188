"""A translation of a document that is stopped by a signal: what is done is kept, and the same command goes on."""

import itertools
import json
import signal
import time
from pathlib import Path

from .process import begun, knnmt

WORDS = "der die das ein Hund Katze Haus Auto".split()
TEXTS = [" ".join(words) for words in itertools.product(WORDS, repeat=3)]
QUICK = ("--beam", "1", "--max-length", "8", "--no-spans")


def lines(path: Path) -> list[str]:
    """The whole lines of a file, none if it is not there."""
    return path.read_text("utf-8").split("\n")[:-1] if path.exists() else []


def big(folder: Path, model: Path) -> list[str]:
    """The command that translates a large catalog."""
    source = folder / "big.po"
    source.write_text("".join(f'msgid "{text}"\nmsgstr ""\n\n' for text in TEXTS), encoding="utf-8")
    return ["translate", str(source), "-o", str(folder / "out.po"), "-m", str(model), *QUICK]


def wait_for_work(kept: Path) -> None:
    """Wait until some translations are on disk."""
    until = time.monotonic() + 60
    while len(lines(kept)) < 3 and time.monotonic() < until:
        time.sleep(0.005)


def resumes(arguments: list[str], folder: Path) -> None:
    """What is on disk is used by the same command, and nothing else is left behind."""
    out, kept = folder / "out.po", folder / ".out.po.part.jsonl"
    assert not out.exists()
    head, first, *others = lines(kept)
    assert len(others) + 1 < len(TEXTS)
    # a text that no model would write shows whose translation is used
    marked = json.dumps({**json.loads(first), "target": ["from the first run", []], "problems": []})
    kept.write_text("\n".join([head, marked, *others, ""]), "utf-8")
    resumed = knnmt(*arguments)
    assert resumed.returncode == 0, resumed.stderr
    assert out.read_text("utf-8").count('msgstr "from the first run"') == 1
    assert sorted(path.name for path in folder.iterdir()) == ["big.po", "out.po"]


def test_ctrl_c(tiny: Path, tmp_path: Path) -> None:
    arguments, kept = big(tmp_path, tiny), tmp_path / ".out.po.part.jsonl"
    process = begun(*arguments)
    wait_for_work(kept)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    told = f"note: {len(lines(kept)) - 1} translations kept: the same command resumes the work\nknnmt: interrupted\n"
    assert stderr == told
    resumes(arguments, tmp_path)


def test_a_process_that_is_terminated(tiny: Path, tmp_path: Path) -> None:
    arguments = big(tmp_path, tiny)
    process = begun(*arguments)
    wait_for_work(tmp_path / ".out.po.part.jsonl")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == -signal.SIGTERM
    process.close()
    resumes(arguments, tmp_path)
