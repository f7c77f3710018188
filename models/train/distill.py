"""Translate a corpus with a stronger model, to train a small one on what it says (sequence-level distillation).

    python models/train/distill.py --teacher base-de-en --data general/*.tsv.xz --out distilled.tsv [--swap]

Each line that is written is `source<TAB>translation`: of the teacher's n best translations the one that has most in
common with the reference (Kim and Rush 2016, section 3.3). The order of the corpus is shuffled, so that any beginning
of the file is a sample of it; `--minutes` ends the work, and the same command resumes it. The teacher is a model of
`train.py`, whose tokens are the pieces of its SentencePiece model.
"""

import argparse
import multiprocessing
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TextIO

import sentencepiece
from prepare import EOS, MAX_TOKENS, Pair, log, read_pairs

from knnmt.decode.settings import TranslateSettings
from knnmt.model.checkpoint import load
from knnmt.trace import NO_TRACE
from knnmt.translate.search import BatchSearch

CHUNK = 65_536  # pairs that are sorted by length and translated together
JOB = 2_048  # pairs whose translations a process chooses
Ids = tuple[int, ...]


def main() -> None:
    """Translate until all is done or the time is up."""
    options = parse()
    pieces = options.teacher / "source.spm"
    pairs = read_pairs(options.data, swap=options.swap)
    done = options.out.read_bytes().count(b"\n") if options.out.exists() else 0
    log(f"{len(pairs):,} pairs, {done:,} of them done")
    with multiprocessing.get_context("spawn").Pool(options.processes, start, (str(pieces),)) as pool:
        model = load(options.teacher, precision=options.precision)
        settings = TranslateSettings(beam=options.beam, n_best=options.beam, batch_size=options.batch_size)
        search = BatchSearch(model, None, settings, NO_TRACE)
        begun, first = time.monotonic(), done
        with options.out.open("a", encoding="utf-8") as out:
            written: list[Iterator[list[str]]] = []
            for at in range(done, len(pairs), CHUNK):
                if time.monotonic() - begun > options.minutes * 60:
                    break
                some = pairs[at : at + CHUNK]
                ids = [row[:MAX_TOKENS] for row in model.tokenizer.encode_source([source for source, _ in some])]
                found = search.run(ids, None)
                jobs = [
                    ([[hypothesis.tokens for hypothesis in each] for each in found[i : i + JOB]], some[i : i + JOB])
                    for i in range(0, len(some), JOB)
                ]
                written.append(pool.imap(choose, jobs))  # while the next chunk is translated
                if len(written) > 1:
                    write(written.pop(0), out)
                speed = (at + len(some) - first) / (time.monotonic() - begun)
                log(f"{at + len(some):,} translated, {speed:,.0f} a second")
            for lines in written:
                write(lines, out)


def write(lines: Iterator[list[str]], out: TextIO) -> None:
    """Append a chunk."""
    for some in lines:
        out.writelines(some)
    out.flush()


def start(model: str) -> None:
    """Prepare a process that chooses."""
    global PIECES
    PIECES = sentencepiece.SentencePieceProcessor(model_file=model)


def choose(job: tuple[Sequence[Sequence[Ids]], Sequence[Pair]]) -> list[str]:
    """Lines of sources and, of their translations, those that have most in common with the references."""
    lines = []
    for hypotheses, (source, target) in zip(*job, strict=True):
        wanted = PIECES.encode(target)
        texts = [[token for token in tokens if EOS < token < len(PIECES)] for tokens in hypotheses]
        best = max(texts, key=lambda tokens: common(tokens, wanted))
        lines.append(f"{source}\t{PIECES.decode(best)}\n")
    return lines


def common(ours: Sequence[int], theirs: Sequence[int]) -> float:
    """The share of tokens and pairs of tokens that two texts have in common (F1)."""
    left, right = (Counter(ids) + Counter(pairwise(ids)) for ids in (ours, theirs))
    return 2 * (left & right).total() / max(1, left.total() + right.total())


def parse() -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--teacher", type=Path, required=True)
    parser.add_argument("--data", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--swap", action="store_true", help="--data has the target first")
    parser.add_argument("--beam", type=int, default=5)
    parser.add_argument("--batch-size", type=int, help="default: what suits the device")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--processes", type=int, default=max(1, multiprocessing.cpu_count() - 4))
    parser.add_argument("--minutes", type=float, default=1e9)
    return parser.parse_args()


if __name__ == "__main__":
    main()
