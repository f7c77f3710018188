"""What an experiment found, as `results.json` keeps it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from knnmt.errors import DataError, UsageError


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Built(_Record):
    """A store. A stage that an earlier, interrupted run finished has no seconds."""

    digest: str
    seconds: dict[str, float]
    kept: int
    dropped: dict[str, int]
    counts: dict[str, int]  # segments, entries, tokens, links, clusters, …
    scale: float
    bytes: int  # of all files
    statistics: dict[str, float]  # of the source side, as in the paper's Table 1


class TunedResult(_Record):
    """Settings that translated dev best, and how they were found."""

    digest: str
    settings: dict[str, Any]
    bleu: float
    base_bleu: float
    segments: int
    trials: int
    seconds: float
    ends: tuple[str, ...] = ()  # the values that lie at the end of what was searched


class Translated(_Record):
    """A translation of test: `tokens` are those of the output."""

    digest: str
    segments: int
    tokens: int
    seconds: float


class Metric(_Record):
    """A score of a system, with half of its 95% interval; `p` compares it with other systems, by their names."""

    metric: str
    value: float
    signature: str
    mean: float
    interval: float
    p: dict[str, float]


class Scored(_Record):
    """Scores by system. `unseen` is BLEU on those test segments alone that are not, not even nearly, in the store."""

    digest: str
    metrics: dict[str, list[Metric]]
    unseen: dict[str, float]


class Varied(_Record):
    """BLEU on dev with the tuned settings, but for one of them; the values of `temperature` are multiples of the tuned
    one."""

    system: str
    setting: str
    value: float
    bleu: float


class Choices(_Record):
    """Shares of reference tokens: the right one is in the chosen cluster, in any cluster of the sentence; the cluster
    richest in it is the nearest, or among the n nearest."""

    chosen: float
    any: float
    richest_first: float
    richest_among: dict[str, float]


class Kept(_Record):
    """What a choice adds to base MT's mean log-likelihood of a reference token, with the weight λ that was fitted on
    other segments; the parts of it by p_MT of the token; and the mean p_kNN of the right token. softness: of a choice
    among clusters, the temperature, times T."""

    weight: float
    softness: float = 1.0
    gain: float
    by_certainty: list[float]
    right: float


class Decomposition(_Record):
    """What is lost where, on references of dev that nothing was tuned on. bounds: of the bins of p_MT."""

    digest: str
    segments: int
    tokens: int
    choices: Choices
    bounds: tuple[float, ...]
    kept: dict[str, Kept]


class SystemResults(_Record):
    """A system in a domain; base MT has no settings and no store."""

    system: str
    tuned: TunedResult | None
    translated: Translated
    bytes: int  # of the arrays that it opens
    metrics: list[Metric]
    unseen: float | None

    def value(self, metric: str) -> float:
        """The score by a metric."""
        return next(found.value for found in self.metrics if found.metric == metric)


class DomainResults(_Record):
    """A domain: its store, and every system by name, base first."""

    name: str
    title: str
    note: str
    built: Built
    overlaps: dict[str, dict[str, int]]  # of dev and test with the store: exact, near, segments
    systems: dict[str, SystemResults]
    varied: list[Varied] = []
    decomposition: Decomposition | None = None


def joined(results: Sequence["Results"]) -> list["Results"]:
    """The results of each experiment: those of its pieces, which were run apart, put together in its own order.

    Pieces have the same config and none of each other's domains.
    """
    made: list[Results] = []
    for one in results:
        names = {domain.name for domain in one.domains}
        for place, other in enumerate(made):
            order = [domain["name"] for domain in one.config.get("domains", [])]
            known = {domain.name for domain in other.domains}
            if other.config == one.config and not names & known and names | known <= set(order):
                domains = sorted((*other.domains, *one.domains), key=lambda domain: order.index(domain.name))
                made[place] = other.model_copy(update={"domains": domains})
                break
        else:
            made.append(one)
    return made


def updated(old: "Results", new: "Results") -> "Results":
    """The results of an experiment, and of a later run of some of its domains and systems in place of what it had."""
    known = {domain.name: domain for domain in old.domains}
    for domain in new.domains:
        before = known.get(domain.name)
        known[domain.name] = domain if before is None else _updated(before, domain)
    order = [domain["name"] for domain in new.config.get("domains", [])]
    domains = sorted(known.values(), key=lambda one: order.index(one.name) if one.name in order else len(order))
    busiest = max((old, new), key=lambda one: float(str(one.machine.get("load", 0.0))))
    machine = new.machine | {"load": busiest.machine.get("load", 0.0)}  # seconds mean something where all do
    return new.model_copy(update={"domains": domains, "machine": machine})


def _updated(old: DomainResults, new: DomainResults) -> DomainResults:
    """A domain. Its store is the first one, which served all systems."""
    varied = {point.system for point in new.varied}
    points = [point for point in old.varied if point.system not in varied] + new.varied
    before, lost = old.decomposition, new.decomposition or old.decomposition
    if before is not None and lost is not None and before.tokens == lost.tokens:  # of the same references
        lost = lost.model_copy(update={"kept": before.kept | lost.kept})
    order = list(dict.fromkeys((*old.systems, *new.systems)))
    systems = {name: new.systems.get(name) or old.systems[name] for name in order}
    return old.model_copy(update={"systems": systems, "varied": points, "decomposition": lost})


class Results(_Record):
    """An experiment. `config` is the file as it was understood."""

    title: str
    note: str
    digest: str
    config: dict[str, Any]
    machine: dict[str, Any]
    versions: dict[str, str]
    domains: list[DomainResults] = Field(min_length=1)

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Read `results.json`, or that of a folder."""
        path = path / "results.json" if path.is_dir() else path
        try:
            return cls.model_validate_json(path.read_bytes())
        except OSError as error:
            raise UsageError(f"cannot read {path}: {error.strerror}; `knnmt reproduce` writes it") from None
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(str(part) for part in first["loc"])
            raise DataError(f"{path} is not a results file of `knnmt reproduce`: {place}: {first['msg']}") from None
