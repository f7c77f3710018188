"""The tables of the paper (Wang et al. 2021) beside what was measured here, and where Faster loses.

The paper's own values stand here as it prints them. Its model, and most of its texts, are others: rows are to be
compared by what a system gains over base MT, and by how much of kNN-MT's gain it keeps.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean

from knnmt.lab.report.tables import Rows, Table, model_name
from knnmt.lab.reproduce.config import BASE, REFERENCE, TM
from knnmt.lab.reproduce.results import Decomposition, DomainResults, Results

# Table 1: by domain, in the order of `STATISTICS`
STATISTICS = ("pairs", "longest", "mean_length", "tokens", "types", "highest_frequency", "mean_frequency")
LABELS = (
    "sentence pairs", "longest source sentence", "mean source sentence", "source tokens", "token types",
    "highest type frequency", "mean type frequency",
)  # fmt: skip
TEXTS = {
    "medical": ("0.25M", "469", "13.9", "3.5M", "18K", "0.18M", "374"),
    "it": ("0.22M", "704", "9.0", "2.0M", "21K", "0.11M", "182"),
    "koran": ("0.02M", "252", "19.7", "0.3M", "7K", "0.03M", "74"),
    "subtitles": ("0.5M", "65", "7.6", "3.9M", "23K", "0.4M", "237"),
}
NAMES = {"medical": "Medical", "it": "IT", "koran": "Koran", "subtitles": "Subtitles"}
# Table 3: BLEU of base MT, and the gains over it
DOMAINS: dict[str, dict[str, float]] = {
    BASE: {"medical": 39.9, "it": 38.0, "koran": 16.3, "subtitles": 29.2},
    REFERENCE: {"medical": 54.4, "it": 45.8, "koran": 19.4, "subtitles": 31.7},
    "fast": {"medical": 53.6, "it": 45.5, "koran": 21.2, "subtitles": 30.5},
    "faster": {"medical": 52.7, "it": 44.9, "koran": 20.4, "subtitles": 30.2},
}
# Table 2: WMT'19 German-English and WMT'14 English-French
WMT: dict[str, tuple[float, float]] = {
    BASE: (37.6, 41.1), REFERENCE: (39.1, 41.8), "fast": (39.3, 41.7), "faster": (39.3, 41.6),
    "fast-clustered": (39.1, 41.4), "faster-exact": (39.5, 41.6),
}  # fmt: skip
TIMES = {"faster": 1.2, "fast": 2.0, REFERENCE: 100.0}  # times base MT's, as the text tells them
STAND_IN = {"bible": "medical"}  # a text that stands in for one of the paper's
STEPS = (REFERENCE, "fast", "fast-clustered", "faster-exact", "faster")
ROWS = (BASE, TM, *STEPS[:2], "fast-clustered", "faster", "faster-exact", "proto", "similar")
PUBLISHED = "-published"  # in the name of a run with the published choices


def sections(results: Sequence[Results]) -> dict[str, list[Table]]:
    """The paper's tables, as far as there is anything to set beside them."""
    whole = [one for one in results if any(parent(one, d) == d.name and _told(d.name) for d in one.domains)]
    if not any(REFERENCE in domain.systems for one in whole for domain in one.domains):
        return {}
    first = whole[0]
    found = [
        Table("Table 1: the texts, source side", texts(first), "Paper: in tokens of its model; here: of this one's."),
        Table(
            "Table 3: BLEU by domain (gain over base MT)", by_domain(results),
            "Kept: the mean gain, of kNN-MT's. Bible stands in for Medical; texts and models are not the paper's.",
        ),
        Table(
            "Table 2: the ablations, as gains over base MT", ablations(results),
            "Paper: WMT'19 German-English and WMT'14 English-French. Here: the mean over the domains.",
        ),
    ]  # fmt: skip
    lost = [table for one in whole for table in losses(one)]
    return {"The paper's tables": found} | ({"Where Faster loses": lost} if lost else {})


def _told(name: str) -> bool:
    """Whether the paper has figures of a domain, or of what it stands in for."""
    return STAND_IN.get(name, name) in DOMAINS[BASE]


def parent(results: Results, domain: DomainResults) -> str:
    """The name of the domain that a domain is a variant of, or its own."""
    asked: Mapping[str, object] = next(
        (each for each in results.config.get("domains", []) if each["name"] == domain.name), {}
    )
    return str(asked.get("variant_of") or domain.name)


def texts(results: Results) -> Rows:
    """Table 1."""
    domains = [domain for domain in results.domains if parent(results, domain) == domain.name]
    known = [key for key in TEXTS if key in {d.name for d in domains} or key in STAND_IN.values()]
    heads = [
        *(f"{key.title() if key != 'it' else 'IT'}, paper" for key in known),
        *(f"{d.title}, here" for d in domains),
    ]
    rows: Rows = [["", *heads]]
    for place, (label, key) in enumerate(zip(LABELS, STATISTICS, strict=True)):
        here = [domain.built.statistics[key] for domain in domains]
        shown = [f"{value:,.1f}" if key.startswith("mean") else f"{value:,.0f}" for value in here]
        rows.append([label, *(TEXTS[paper][place] for paper in known), *shown])
    return rows


def by_domain(results: Sequence[Results]) -> Rows:
    """Table 3: the paper's rows, then ours for each model, published choices last."""
    order = list(dict.fromkeys(parent(one, d) for one in results for d in one.domains))
    order = list(filter(_told, order))
    titles = {d.name: d.title for one in results for d in one.domains}
    rows: Rows = [["", *(titles.get(name, name) for name in order), "mean", "kept"]]
    paper = {system: {name: values[STAND_IN.get(name, name)] for name in order} for system, values in DOMAINS.items()}
    rows += _lines("paper: ", order, paper)
    for model, found in scores(results).items():
        rows += _lines(f"{model}: ", order, found)
    return rows


def scores(results: Sequence[Results]) -> dict[str, dict[str, dict[str, float]]]:
    """BLEU by model, system and domain: of whole domains, and of variants with the published choices."""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for one in results:
        for domain in one.domains:
            place = parent(one, domain)
            for name, system in domain.systems.items():
                if place == domain.name or PUBLISHED in name:
                    found.setdefault(model_name(one), {}).setdefault(name, {})[place] = system.value("BLEU")
    return {model: dict(sorted(by.items(), key=_placed)) for model, by in found.items() if BASE in by}


def _placed(named: tuple[str, object]) -> tuple[bool, int, str]:
    """Where a system stands in tables: published choices last, variants of a system behind it."""
    first = next((place for place, name in reversed([*enumerate(ROWS)]) if named[0].startswith(name)), len(ROWS))
    return PUBLISHED in named[0], first, named[0]


def _lines(label: str, order: Sequence[str], found: Mapping[str, Mapping[str, float]]) -> Iterator[list[str]]:
    """A line for each system; the mean, and what it keeps of kNN-MT's gain, over those domains that it has."""
    for system, values in found.items():
        cells = []
        for name in order:
            value, base = values.get(name), found[BASE].get(name)
            if value is None or base is None:
                cells.append("–")
            else:
                cells.append(f"{value:.1f}" if system == BASE else f"{value:.1f} ({value - base:+.1f})")
        here = [name for name in order if name in values and name in found[BASE]]
        whole = len(here) == len(order)
        mean = f"{fmean(values[name] for name in here):.1f}" if whole else "–"
        kept = share(found, system, here)
        rows = "" if system == BASE or kept is None else f"{kept:.0%}" + ("" if whole else f" of {len(here)}")
        yield [f"{label}{system}", *cells, mean, rows]


def share(found: Mapping[str, Mapping[str, float]], system: str, names: Sequence[str]) -> float | None:
    """The mean gain of a system as a share of kNN-MT's, over some domains."""
    if not names or REFERENCE not in found or any(name not in found[REFERENCE] for name in names):
        return None
    gains = [fmean(found[one][name] - found[BASE][name] for name in names) for one in (system, REFERENCE)]
    return gains[0] / gains[1] if gains[1] > 0 else None


def ablations(results: Sequence[Results]) -> Rows:
    """Table 2."""
    ours = scores(results)
    rows: Rows = [["system", "De-En, paper", "En-Fr, paper", *(f"{model}, here" for model in ours)]]
    for system, (german, french) in WMT.items():
        if system == BASE:
            cells = [f"{german:.1f}", f"{french:.1f}"]
        else:
            cells = [f"{german - WMT[BASE][0]:+.1f}", f"{french - WMT[BASE][1]:+.1f}"]
        for found in ours.values():
            here = [name for name in found.get(system, {}) if name in found[BASE]]
            if not here:
                cells.append("–")
            elif system == BASE:
                cells.append(f"{fmean(found[BASE].values()):.1f}")
            else:
                cells.append(f"{fmean(found[system][name] - found[BASE][name] for name in here):+.1f}")
        rows.append([system, *cells])
    return rows


# ---------------------------------------------------------------------------------------------- where Faster loses


def losses(results: Results) -> Iterator[Table]:
    """The decomposition of an experiment."""
    found = {domain.title: domain.decomposition for domain in results.domains if domain.decomposition is not None}
    if not found:
        return
    model = model_name(results)
    rows: Rows = [["share of reference tokens", *found]]
    questions: dict[str, list[float]] = {
        "right token in the chosen cluster": [one.choices.chosen for one in found.values()],
        "right token in any cluster of the sentence": [one.choices.any for one in found.values()],
        "cluster richest in it is the nearest": [one.choices.richest_first for one in found.values()],
    }
    for n in ("2", "4", "8", "16"):
        questions[f"… among the {n} nearest"] = [
            one.choices.richest_among.get(n, float("nan")) for one in found.values()
        ]
    rows += [[label, *(f"{share:.0%}" for share in shares)] for label, shares in questions.items()]
    rows.append(["reference tokens", *(f"{one.tokens:,}" for one in found.values())])
    yield Table(f"{model}: what the clusters hold", rows)
    kept_rows: Rows = [["share of kNN-MT's gain in likelihood", *found, "mean"]]
    for name in kept_order(found.values()):
        values = [kept(one, name) for one in found.values()]
        kept_rows.append([name, *(f"{value:.0%}" for value in values), f"{fmean(values):.0%}"])
    kept_rows.append(
        ["kNN-MT's gain, nats a token", *(f"{one.kept[REFERENCE].gain:.3f}" for one in found.values()), ""]
    )
    yield Table(
        f"{model}: what each choice keeps",
        kept_rows,
        "References of dev that nothing was tuned on; λ constant, fitted on every other segment, k and T as tuned. "
        "Below the systems: other ways to choose among Faster's own clusters. «best cluster»: by the right token "
        "itself, which no system knows.",
    )
    yield Table(
        f"{model}: share kept by the model's certainty of the right token, mean of the domains",
        by_certainty(list(found.values())),
        "Gain of each system over that of kNN-MT, by p_MT of the token. A dash: kNN-MT gains nothing there.",
    )


def kept(one: Decomposition, name: str) -> float:
    """The share of kNN-MT's gain in likelihood that a choice keeps."""
    return one.kept[name].gain / one.kept[REFERENCE].gain if name in one.kept else float("nan")


def kept_order(found: Iterable[Decomposition]) -> list[str]:
    """Systems first, in the order in which they approximate, then other choices among the same clusters."""
    names = list(dict.fromkeys(name for one in found for name in one.kept))
    systems = [name for name in (*STEPS, "proto", "similar") if name in names]
    return [*systems, *(name for name in names if name not in systems)]


def by_certainty(found: Sequence[Decomposition]) -> Rows:
    """Shares kept by the bins of p_MT."""
    bounds = found[0].bounds
    heads = [f"≤ {bounds[0]:g}", *(f"to {bound:g}" for bound in bounds[1:]), "above"]
    rows: Rows = [["system", *heads]]
    for name in (name for name in STEPS if all(name in one.kept for one in found)):
        rows.append([name, *(_percent(value) for value in certainty_shares(found, name))])
    return rows


def certainty_shares(found: Sequence[Decomposition], name: str) -> list[float | None]:
    """Gain of a system over kNN-MT's by bin, domains taken together; None where kNN-MT gains nothing."""
    shares: list[float | None] = []
    for place in range(len(found[0].bounds) + 1):
        ours, whole = (fmean(one.kept[which].by_certainty[place] for one in found) for which in (name, REFERENCE))
        shares.append(ours / whole if whole > 0.005 else None)
    return shares


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
