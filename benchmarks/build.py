"""Watch the memory and the disk that `knnmt build` takes, stage by stage, for synthetic corpora of several sizes.

    python benchmarks/build.py 1e6 1e7

Words are as frequent as in a text (Zipf), and the model is a random one of width 64 with one layer, so that 10⁷ target
tokens take minutes. Options that are not known here go to `knnmt build`. The build runs in a process of its own, whose
anonymous memory (RssAnon: what is its own, without the pages of mapped files, which the kernel takes back when it needs
them) is read every 50 ms. Everything is made in a temporary folder, or where `--folder` says: 0.7 kB a token. Linux
only.
"""

import argparse
import contextlib
import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import sentencepiece
import torch
import transformers

from knnmt.store.manifest import work_folder

STAGES = (
    "read", "align", "link", "join", "count", "cut", "represent", "scale", "project", "cluster", "prototypes",
    "similar", "keys", "index", "seal",
)  # fmt: skip
WORDS = 20_000  # that the synthetic corpora have
INTERVAL = 0.05  # seconds between looks
BUILD = "import sys; from knnmt.cli import main; sys.exit(main())"


def anonymous(process: int) -> int:
    """Return the bytes of a process's own memory; none once it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except OSError:
        return 0
    return next((1024 * int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")), 0)


def running(work: Path) -> int:
    """The place of the stage that is running: the one after the last that was done, of whichever part."""
    try:
        done = max(work.glob("*.done"), key=lambda path: path.stat().st_mtime_ns, default=None)
    except OSError:  # it was just removed
        return len(STAGES) + 1
    return 0 if done is None else 2 + STAGES.index(done.name.split(".")[1])


def on_disk(work: Path) -> int:
    """The bytes of all files of a work folder."""
    size = 0
    for path in work.rglob("*"):
        with contextlib.suppress(OSError):  # it was just removed
            size += path.stat().st_size if path.is_file() else 0
    return size


def watch(corpus: Path, langs: str, out: Path, more: list[str]) -> dict[str, tuple[int, int]]:
    """Build a store; return the most bytes of memory and disk before the stages, in each, and after them."""
    command = [sys.executable, "-c", BUILD, "build", str(corpus), "--langs", langs, "--out", str(out), *more]
    work, names = work_folder(out), ("start", *STAGES, "publish")
    peaks = dict.fromkeys(names, (0, 0))
    with subprocess.Popen(command) as build:
        while build.poll() is None:
            now = names[running(work)]
            held, disk = peaks[now]
            peaks[now] = max(held, anonymous(build.pid)), max(disk, on_disk(work))
            time.sleep(INTERVAL)
    if build.returncode:
        raise SystemExit(f"the build of {corpus} failed")
    return peaks


def random_model(folder: Path, width: int) -> None:
    """Write a Marian model of one layer, whose tokens are WORDS words."""
    lines = (" ".join(map(word, range(begin, begin + 10))) for begin in range(0, WORDS, 10))
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=lines, model_writer=written, model_type="word", vocab_size=WORDS + 3, hard_vocab_limit=False,
        eos_id=0, unk_id=1, bos_id=-1, pad_id=-1, minloglevel=2,
    )  # fmt: skip
    folder.mkdir()
    spm, vocabulary = folder / "words.spm", folder / "words.json"
    spm.write_bytes(written.getvalue())
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(spm))
    names = ["</s>", "<unk>", *(pieces.id_to_piece(number) for number in range(2, len(pieces))), "<pad>"]
    vocabulary.write_text(json.dumps({piece: number for number, piece in enumerate(names)}))
    torch.manual_seed(1)
    layers = {f"{side}_{name}": value for side in ("encoder", "decoder")
              for name, value in (("layers", 1), ("attention_heads", 4), ("ffn_dim", width))}  # fmt: skip
    config = transformers.MarianConfig(
        vocab_size=len(names), d_model=width, max_position_embeddings=256, pad_token_id=len(names) - 1, eos_token_id=0,
        decoder_start_token_id=len(names) - 1, init_std=0.3, **layers,
    )  # fmt: skip
    transformers.MarianMTModel(config).save_pretrained(folder)
    transformers.MarianTokenizer(str(spm), str(spm), str(vocabulary), source_lang="de", target_lang="en") \
        .save_pretrained(folder)  # fmt: skip


def word(number: int) -> str:
    """A word of syllables."""
    return "".join("bdfgklmnprst"[number // 5 // 60**at % 12] + "aeiou"[number // 60**at % 5] for at in range(3))


def write_corpus(path: Path, tokens: int) -> None:
    """Write pairs of 19 words, a target token more with the end; the target has the words of the source, shifted."""
    rng = np.random.default_rng(1)
    names = np.array([word(number) for number in range(WORDS)])
    shares = np.cumsum(1.0 / np.arange(1, WORDS + 1))
    with path.open("w") as out:
        for begin in range(0, tokens // 20, 10_000):
            size = min(10_000, tokens // 20 - begin)
            drawn = np.searchsorted(shares, rng.random((size, 19)) * shares[-1]).clip(0, WORDS - 1)
            for source, target in zip(names[drawn], names[(drawn + 7) % WORDS], strict=True):
                out.write(f"{' '.join(source)}\t{' '.join(target)}\n")


def main() -> None:
    """Run the comparison."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("tokens", type=float, nargs="+", help="target tokens of each corpus")
    parser.add_argument("--width", type=int, default=64, help="of the model")
    parser.add_argument("--folder", type=Path, default=None, help="where there is room")
    arguments, more = parser.parse_known_args()
    sizes = [int(tokens) for tokens in arguments.tokens]
    peaks = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
        folder = Path(name)
        random_model(folder / "model", arguments.width)
        for tokens in sizes:
            write_corpus(folder / "corpus.tsv", tokens)
            began = time.perf_counter()
            options = ["--model", str(folder / "model"), "--no-clean", *more]
            peaks.append(watch(folder / "corpus.tsv", "de-en", folder / "store", options))
            print(f"{tokens:,} tokens took {time.perf_counter() - began:.0f} s", flush=True)
            shutil.rmtree(folder / "store")
    heads = "".join(f"{tokens:>12,.0e} {'bytes/token':>12}" for tokens in sizes)
    print(f"{'stage':>12}{'memory, MB:':>12}{heads}{'disk, MB:':>12}{heads}")
    for stage in peaks[0]:
        print(f"{stage:>12}", end="")
        for kind in (0, 1):
            figures = ((peak[stage][kind], tokens) for peak, tokens in zip(peaks, sizes, strict=True))
            print(" " * 12 + "".join(f"{held / 1e6:12,.0f} {held / tokens:12,.0f}" for held, tokens in figures), end="")
        print()


if __name__ == "__main__":
    main()
