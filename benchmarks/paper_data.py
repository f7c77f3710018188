"""What the experiments of quick.toml, published.toml, sizes.toml and clusters.toml need besides the texts themselves.

    python benchmarks/paper_data.py DATA OUT

DATA has the folders koran, it, subtitles and bible with train, dev and test as two files each. OUT gets for each domain
its texts, `clean.tsv` (train, cleaned as in the paper's section 4.1), `first-N.tsv` (random samples of train, each
inside the next larger one) and Pharaoh files with the links of all of them as FastAlign gives them, each aligned from
its own segments alone: `train.links`, `clean.links`, `first-N.links`. With these a machine without numba can build.
`matches` has the fuzzy matches of dev and test in each store, which a folder of results takes as `matches.json`.
"""

import itertools
import random
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from knnmt.align.bitext import Bitext
from knnmt.align.fastalign import train
from knnmt.align.links import symmetrise
from knnmt.align.pharaoh import write_pharaoh
from knnmt.corpus import CleanReport, CleanSettings, Segment, clean, read_all
from knnmt.lab.reproduce import Config, memory
from knnmt.languages import Languages
from knnmt.model.checkpoint import Model, load

DOMAINS = ("koran", "subtitles", "bible", "it")
SAMPLES = (100, 300, 1000, 3000, 10000)
LANGUAGES = Languages.parse("de-en")
WITH_MATCHES = ("quick", "sizes")  # the configs that have a translation memory as yardstick
CONFIGS = Path(__file__).resolve().parent.parent / "configs"


def main(data: Path, out: Path, domains: Sequence[str]) -> None:
    """Make everything that is not there yet."""
    model = load("mini-de-en", device="cpu", precision="float32", langs=str(LANGUAGES))
    for domain in domains:
        place = out / domain
        place.mkdir(parents=True, exist_ok=True)
        for file in sorted((data / domain).iterdir()):
            shutil.copyfile(file, place / file.name)
        segments = list(read_all([place / "train"], LANGUAGES))
        align(model, segments, place / "train.links")
        report = CleanReport()
        length = lambda text: len(model.tokenizer.tokenize(text))  # noqa: E731
        good = list(clean(segments, LANGUAGES, CleanSettings(ratio_from=1), length, report))
        print(f"{domain}: {report}", flush=True)
        write(good, place / "clean.tsv")
        align(model, good, place / "clean.links")
        random.Random(1).shuffle(segments)
        for count in SAMPLES:
            if count < len(segments):
                write(segments[:count], place / f"first-{count}.tsv")
                align(model, segments[:count], place / f"first-{count}.links")

    (out / "matches").mkdir(exist_ok=True)
    for config in (Config.load(CONFIGS / f"{name}.toml") for name in WITH_MATCHES):
        for asked in config.domains:
            train = [out / name for name in asked.train]
            if (asked.variant_of or asked.name) in domains and all(_there(path) for path in train):
                dev, test = (
                    list(itertools.islice(read_all([out / name], LANGUAGES, identify=False), most))
                    for name, most in ((asked.dev, config.tune.segments), (asked.test, config.translate.segments))
                )
                memory.matches(out / "matches" / f"{asked.name}.json", train, LANGUAGES, dev, test)


def _there(path: Path) -> bool:
    return path.exists() or path.with_suffix(f".{LANGUAGES.source}").exists()


def write(segments: Sequence[Segment], path: Path) -> None:
    """Write a TSV file."""
    lines = ("\t".join(side.replace("\t", " ") for side in (one.source, one.target)) for one in segments)
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def align(model: Model, segments: Sequence[Segment], path: Path) -> None:
    """Align segments by a model trained on them."""
    if path.exists():
        return
    began = time.perf_counter()
    sources = model.tokenizer.encode_source([one.source.replace("\t", " ") for one in segments])
    targets = model.tokenizer.encode_target([one.target.replace("\t", " ") for one in segments])
    bitext = Bitext.from_pairs((s, [*t, model.special.end]) for s, t in zip(sources, targets, strict=True))
    links = symmetrise(bitext, *train(bitext).best(bitext))
    write_pharaoh(links, path)
    share = links.linked / int(bitext.target_offsets[-1])
    print(f"{path}: {len(bitext):,} segments, {share:.1%} of target tokens linked, {time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] or DOMAINS)
