"""The aligner in plain Python: dictionaries, sums over every cell, and sets of links. Slow on purpose.

Sentences are lists of token ids; a corpus is a list of (source, target). Positions are counted from 0 in
links, and from 1 in the prior, as in the paper.
"""

import math
from collections import defaultdict
from dataclasses import dataclass

Corpus = list[tuple[list[int], list[int]]]
Point = tuple[int, int]

NULL = None


@dataclass
class Direction:
    """p(generated | given) and the tension of the prior; `given` is None for the null word."""

    probability: dict[tuple[int | None, int], float]
    tension: float


def digamma(x: float) -> float:
    """Return ψ(x): by its recurrence up to where three terms of the asymptotic series are exact enough."""
    shift = 0.0
    while x < 200:
        shift, x = shift + 1 / x, x + 1
    return math.log(x) - 1 / (2 * x) - 1 / (12 * x**2) + 1 / (120 * x**4) - shift


def prior(i: int, n: int, j: int, m: int, tension: float, p0: float) -> float:
    """Return the probability that token j of m generated ones comes from token i of n."""
    weights = [math.exp(-tension * abs((k + 1) / n - (j + 1) / m)) for k in range(n)]
    return (1 - p0) * weights[i] / sum(weights)


def mean_distance(n: int, j: int, m: int, tension: float) -> float:
    """Return the expected |i/n - j/m| under the prior, given that j is linked at all."""
    return sum(prior(i, n, j, m, tension, 0.0) * abs((i + 1) / n - (j + 1) / m) for i in range(n))


def posterior(model: Direction, given: list[int], generated: list[int], j: int, p0: float) -> dict[int | None, float]:
    """Return the probability of each origin of generated token j: a position, or None for the null word."""
    n, m = len(given), len(generated)
    joint: dict[int | None, float] = {NULL: p0 * model.probability[NULL, generated[j]]}
    for i in range(n):
        p = model.probability[given[i], generated[j]]
        joint[i] = p * prior(i, n, j, m, model.tension, p0)
    total = sum(joint.values())
    return {i: p / total for i, p in joint.items()}


def fit(corpus: Corpus, updates: int, p0: float, alpha: float) -> Direction:
    """Train target given source. A corpus with its sides swapped gives the other direction."""
    corpus = [(given, generated) for given, generated in corpus if given and generated]
    pairs = {(e, f) for given, generated in corpus for e in [NULL, *given] for f in generated}
    model = Direction(dict.fromkeys(pairs, 1.0), 4.0)
    for update in range(updates):
        counts: dict[tuple[int | None, int], float] = dict.fromkeys(pairs, 0.0)
        distance = linked = 0.0
        for given, generated in corpus:
            for j, f in enumerate(generated):
                for i, p in posterior(model, given, generated, j, p0).items():
                    counts[NULL if i is None else given[i], f] += p
                    if i is not None:
                        linked += p
                        distance += p * abs((i + 1) / len(given) - (j + 1) / len(generated))
        if update > 0 and linked > 0:
            positions = [(len(given), j, len(gen)) for given, gen in corpus for j in range(len(gen))]
            for _ in range(8):
                expected = sum(mean_distance(*p, model.tension) for p in positions) / len(positions)
                model.tension += 20 * (expected - distance / linked)
                model.tension = min(max(model.tension, 0.1), 14.0)
        totals: dict[int | None, float] = defaultdict(float)
        for (e, _), count in counts.items():
            totals[e] += count + alpha
        for (e, f), count in counts.items():
            p = math.exp(digamma(count + alpha) - digamma(totals[e]))
            model.probability[e, f] = max(p, 1e-300)
    return model


def scores(
    model: Direction, given: list[int], generated: list[int], j: int, p0: float, floor: float
) -> dict[int, float]:
    """Return the log-probability that token j comes from each position, and from the null word at -1."""

    def log(p: float) -> float:
        return math.log(p) if p > 0 else -math.inf

    def lexical(e: int | None) -> float:
        return log(max(model.probability.get((e, generated[j]), 0.0), floor))

    n, m = len(given), len(generated)
    found = {i: lexical(given[i]) + log(prior(i, n, j, m, model.tension, p0)) for i in range(n)}
    return {-1: lexical(NULL) + log(p0), **found}


def grow_diag_final_and(forward: set[Point], backward: set[Point]) -> set[Point]:
    """Symmetrise as in Koehn's pseudo-code; points are (source, target)."""

    def order(point: Point) -> Point:
        return point[1], point[0]

    union = forward | backward
    links = forward & backward

    def free(axis: int, point: Point) -> bool:
        return all(link[axis] != point[axis] for link in links)

    steps = [(0, -1), (-1, 0), (0, 1), (1, 0), (-1, -1), (1, -1), (-1, 1), (1, 1)]
    before = -1
    while len(links) > before:
        before = len(links)
        for i, j in sorted(union, key=order):
            if (i, j) in links:
                for di, dj in steps:
                    new = (i + di, j + dj)
                    if new in union and (free(0, new) or free(1, new)):
                        links.add(new)
    for direction in (forward, backward):
        for point in sorted(direction, key=order):
            if free(0, point) and free(1, point):
                links.add(point)
    return links


def cover(links: set[Point], n: int, m: int) -> set[Point]:
    """Link every one of m target tokens: as the nearest linked one, or on the diagonal if none is."""
    linked = {j for _, j in links}
    covered = set(links)
    for j in range(m):
        if linked:
            model = min(linked, key=lambda other: (abs(other - j), other))
            covered |= {(i, j) for i, other in links if other == model}
        elif n:
            covered.add((min(range(n), key=lambda i: (abs((i + 1) * m - (j + 1) * n), i)), j))
    return covered
