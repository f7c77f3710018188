"""Put the pieces that benchmarks/paper_gpu.py brought together: one file for each experiment and model.

python benchmarks/paper_join.py OUT docs/results/paper
knnmt report docs/results/paper --bench docs/results/paper/bench --out docs/results/report
python tests/lab/report/test_paper_page.py        # the tables of docs/paper.md

What the folder has already stays, but for the domains and systems that were run again.
"""

import json
import shutil
import sys
from collections import defaultdict
from functools import reduce
from pathlib import Path

from knnmt.lab.report.tables import model_name
from knnmt.lab.reproduce.results import Results, updated


def main(pieces: Path, place: Path) -> None:
    """Write EXPERIMENT-MODEL.json and copy the benchmarks."""
    place.mkdir(parents=True, exist_ok=True)
    found: dict[Path, list[Results]] = defaultdict(list)
    for path in sorted((pieces / "json").glob("*.json"), key=lambda path: (path.stat().st_mtime, path)):
        one = Results.load(path)
        found[place / f"{path.name.split('-')[0]}-{model_name(one)}.json"].append(one)
    for path, some in found.items():
        whole = reduce(updated, [*([Results.load(path)] if path.exists() else []), *some])
        # the folder a model was in is nobody's business
        config = whole.config | {"model": model_name(whole)}
        content = whole.model_copy(update={"config": config}).model_dump(mode="json")
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path, [domain.name for domain in whole.domains])
    (place / "bench").mkdir(exist_ok=True)
    for path in sorted((pieces / "bench").glob("*.json")):
        shutil.copyfile(path, place / "bench" / path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
