"""Put the pieces that benchmarks/paper_gpu.sh brought together: one file for each experiment and model.

python benchmarks/paper_join.py OUT docs/results/paper
knnmt report docs/results/paper --bench docs/results/paper/bench --out docs/results/report
python tests/lab/report/test_paper_page.py        # the tables of docs/paper.md
"""

import json
import shutil
import sys
from pathlib import Path

from knnmt.lab.report.tables import model_name
from knnmt.lab.reproduce.results import Results, joined


def main(pieces: Path, place: Path) -> None:
    """Write EXPERIMENT-MODEL.json and copy the benchmarks."""
    place.mkdir(parents=True, exist_ok=True)
    paths = sorted((pieces / "json").glob("*.json"))
    experiments = {Results.load(path).digest: path.name.split("-")[0] for path in paths}
    for whole in joined([Results.load(path) for path in paths]):
        # the folder a model was in is nobody's business
        config = whole.config | {"model": model_name(whole)}
        content = whole.model_copy(update={"config": config}).model_dump(mode="json")
        path = place / f"{experiments[whole.digest]}-{model_name(whole)}.json"
        path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        print(path, [domain.name for domain in whole.domains])
    (place / "bench").mkdir(exist_ok=True)
    for path in sorted((pieces / "bench").glob("*.json")):
        shutil.copyfile(path, place / "bench" / path.name)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
