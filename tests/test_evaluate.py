"""Scores are sacreBLEU's own, and comparisons find what is there."""

import random

import pytest
import sacrebleu

from knnmt.errors import DataError, UsageError
from knnmt.evaluate import bleu, evaluate

WORDS = "the a dog cat house garden tree runs sleeps sees big small and in on under old new red green".split()


def text(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=12)) for _ in range(200)]


def spoiled(lines: list[str], share: float, seed: int = 9) -> list[str]:
    rng = random.Random(seed)
    return [" ".join("x" if rng.random() < share else word for word in line.split()) for line in lines]


def test_scores_are_those_of_sacrebleu() -> None:
    references, hypotheses = text(1), spoiled(text(1), 0.2)
    found = {s.metric: s for s in evaluate({"a": hypotheses}, references)["a"]}
    assert found["BLEU"].value == pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references]).score)
    assert found["chrF2"].value == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert found["TER"].value == pytest.approx(sacrebleu.corpus_ter(hypotheses, [references]).score)
    assert "tok:13a" in found["BLEU"].signature
    assert f"version:{sacrebleu.__version__}" in found["TER"].signature
    assert found["BLEU"].p is None
    assert bleu(hypotheses, references) == found["BLEU"]


def test_a_worse_system_is_found_and_a_tie_is_not() -> None:
    references = text(1)
    systems = {
        "good": spoiled(references, 0.1),
        "alike": spoiled(references, 0.1, seed=6),
        "bad": spoiled(references, 0.4),
    }
    scores = evaluate(systems, references, resamples=200)
    p = {name: {s.metric: s.p for s in found} for name, found in scores.items()}
    assert p["good"]["BLEU"] is None
    assert p["bad"]["BLEU"] is not None
    assert p["bad"]["BLEU"] < 0.01
    assert p["alike"]["BLEU"] is not None
    assert p["alike"]["BLEU"] > 0.05
    same = evaluate({"one": systems["good"], "copy": systems["good"]}, references, resamples=50)
    assert [s.p for s in same["copy"]] == [1.0, 1.0, 1.0]
    assert "bs:200" in scores["bad"][0].signature


def test_unequal_numbers_of_lines_are_refused() -> None:
    with pytest.raises(DataError, match="a has 2 lines and the references have 3"):
        evaluate({"a": ["x", "y"]}, ["x", "y", "z"])


def test_nothing_to_score() -> None:
    with pytest.raises(UsageError, match="nothing to score"):
        evaluate({}, [])


def test_segments_are_counted_one_by_one_as_sacrebleu_counts_them() -> None:
    """TER's edit distance is compiled here: random texts, long and short, with few words to shift about."""
    from sacrebleu.metrics import TER

    from knnmt.ter import FastTER

    rng, pairs = random.Random(4), []
    for _ in range(60):
        words = WORDS[: rng.choice([2, 6, 20])]
        pairs.append([" ".join(rng.choices(words, k=rng.choice([0, 1, 5, 15, 60]))) for _ in range(2)])
    hypotheses, references = zip(*pairs, strict=True)
    seen: list[tuple[str, int, int | None]] = []
    evaluate({"a": hypotheses}, references, progress=lambda *some: seen.append(some))
    assert seen == [(name, done, 60) for name in ("BLEU", "chrF2", "TER") for done in (50, 10)]
    for metric in (TER(), FastTER()):
        pairs.append(metric._extract_corpus_statistics(list(hypotheses), [list(references)]))
    assert pairs[-1] == pairs[-2]


def test_a_comparison_is_that_of_sacrebleu() -> None:
    from sacrebleu.metrics import BLEU, CHRF, TER
    from sacrebleu.significance import PairedTest

    references = text(1)[:40]
    systems = {"a": spoiled(references, 0.1), "b": spoiled(references, 0.3, seed=3)}
    found = evaluate(systems, references, resamples=50)
    metrics = {"BLEU": BLEU(references=[references]), "chrF2": CHRF(references=[references])}
    metrics["TER"] = TER(references=[references])
    signatures, results = PairedTest(list(systems.items()), metrics, None, test_type="bs", n_samples=50)()
    for number, scores in enumerate(found.values()):
        for score in scores:
            expected = results[score.metric][number]
            assert (score.value, score.mean, score.interval) == (expected.score, expected.mean, expected.ci)
            assert score.p == expected.p_value
            assert score.signature == signatures[score.metric].format()
