"""The figures of the paper's Table 1, counted on a corpus small enough to count by hand."""

from collections.abc import Iterator

from knnmt.corpus import Segment, Statistics, statistics


def corpus() -> Iterator[Segment]:
    for line, source in enumerate(["B C E", "B B", "A"], start=1):
        yield Segment(source, "target texts are not counted", f"x:{line}")


def test_table_1_is_counted_over_the_source_side() -> None:
    assert statistics(corpus()) == Statistics(
        pairs=3, longest=3, mean_length=2.0, tokens=6, types=4, highest_frequency=3, mean_frequency=1.5
    )


def test_the_tokens_are_those_of_the_tokenizer_that_is_given() -> None:
    counted = statistics(corpus(), tokenize=list)
    assert (counted.longest, counted.tokens, counted.types, counted.highest_frequency) == (5, 9, 5, 3)


def test_an_empty_corpus_has_zeros_and_no_division() -> None:
    assert statistics([]) == Statistics(0, 0, 0.0, 0, 0, 0, 0.0)
