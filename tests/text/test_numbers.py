"""Numbers are the same digits in the translation, or the same in words; only one that is certainly wrong is changed."""

import pytest

from knnmt.text.numbers import GROUPS, converted, lost, mended


@pytest.mark.parametrize(
    ("numbers", "target", "missing"),
    [
        (["3,5", "12.500"], "3.5 of 12,500", []),
        (["150.000"], "150 000 people", []),
        (["2", "1"], "the first two", []),
        (["100"], "a hundred men", []),
        (["05"], "5 of them", []),
        (["-5"], "minus 5 degrees", []),
        (["-5"], "5 degrees", ["-5"]),
        (["1990"], "the 1990s", []),
        (["1990"], "the nineties", ["1990"]),
        (["7", "7"], "7 times", ["7"]),
    ],
)
def test_numbers_that_are_missing(numbers: list[str], target: str, missing: list[str]) -> None:
    assert lost(numbers, target, "en") == missing


def test_a_single_wrong_number_is_put_right() -> None:
    assert mended(["80070057"], "Error 807057.", "de", "en") == "Error 80070057."
    assert mended(["3,25"], "The 3.52 metres", "de", "en") == "The 3.25 metres"
    assert mended(["5", "6"], "7 and 8", "de", "en") is None
    assert mended(["4711"], "nothing", "de", "en") is None


@pytest.mark.parametrize(
    ("number", "expected"),
    [("3,5", "3.5"), ("1.234,56", "1,234.56"), ("150.000", "150,000"), ("1.234", "1.234"), ("1,234", "1,234")],
)
def test_only_what_is_certain_is_converted(number: str, expected: str) -> None:
    assert converted(number, "de", "en") == expected
    assert converted(number, "de", "fr") == number
    assert converted(number, None, None) == number


def test_two_numbers_are_not_one() -> None:
    assert GROUPS.findall("am 1 2024 und 10 000") == ["1", "2024", "10 000"]
