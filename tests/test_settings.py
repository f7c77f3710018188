"""What a caller gives wrong is told in a line that names it, never by a dump."""

from collections.abc import Callable
from typing import Any

import pytest

from knnmt.build.settings import BuildSettings
from knnmt.corpus import CleanSettings, Segment
from knnmt.errors import SettingsError, UsageError
from knnmt.settings import Settings
from knnmt.systems.settings import RetrievalSettings
from knnmt.translate import TranslateSettings
from knnmt.translate.translator import check_text


@pytest.mark.parametrize(
    ("kind", "given", "field", "told"),
    [
        (RetrievalSettings, {"k": 0}, "k", "RetrievalSettings: k should be greater than or equal to 1, not 0"),
        (TranslateSettings, {"beam": 0}, "beam", "TranslateSettings: beam should be greater than or equal to 1"),
        (TranslateSettings, {"n_best": 9}, "", "TranslateSettings: 9 translations per text need a beam of"),
        (BuildSettings, {"sed": 1}, "sed", "BuildSettings: sed is no setting: there are systems, key"),
        (BuildSettings, {"clean": {"max_ratio": 0}}, "clean.max_ratio", "clean.max_ratio should be greater"),
        (BuildSettings, {"clean": {"ratio": 0}}, "clean.ratio", "clean.ratio is no setting: there are normalize"),
        (CleanSettings, {"max_tokens": 0}, "max_tokens", "CleanSettings: max_tokens should be"),
    ],
)
def test_wrong_settings_are_told_by_their_name(
    kind: Callable[..., Settings], given: dict[str, Any], field: str, told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        kind(**given)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert isinstance(caught.value, SettingsError)
    assert caught.value.field == field


@pytest.mark.parametrize("text", [None, 3, b"x"])
def test_what_is_no_text_is_told_by_its_number(text: object) -> None:
    with pytest.raises(UsageError, match=f"^text 2 is .*, of type {type(text).__name__}: texts are strings"):
        check_text(text, 2)


def test_a_segment_need_not_say_where_it_comes_from() -> None:
    assert Segment("a", "b").origin == ""
