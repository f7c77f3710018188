"""The demo's text: catalogs of installed packages, no segment of which stands twice."""

from pathlib import Path

import pytest

from knnmt import demo
from knnmt.errors import UsageError

HEADER = 'msgid ""\nmsgstr "Language: de\\nContent-Type: text/plain; charset=UTF-8\\n"\n\n'


def test_catalogs_are_distinct_and_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop_under_test" / "locale" / "de" / "LC_MESSAGES"
    folder.mkdir(parents=True)
    (tmp_path / "shop_under_test" / "__init__.py").write_text("raise RuntimeError('only its files are read')")
    words = [chr(97 + i) + chr(97 + j) for i in range(20) for j in range(20)]
    entries = [(f"The word {word}", f"Das Wort {word}") for word in words]
    entries += [("the word AA!", "Ein anderes Wort"), ("Another word", "das wort: %(n)s aa"), ("%s", "%s")]
    text = HEADER + "".join(f'msgid "{english}"\nmsgstr "{german}"\n\n' for english, german in entries)
    (folder / "django.po").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(demo, "PACKAGES", ("shop_under_test",))

    found = demo.catalogs()
    assert len(found.held_out) == demo.HELD_OUT
    assert len(found.memory) == 400 - demo.HELD_OUT  # nothing but case, marks and placeholders tells the others apart
    assert not {s.source for s in found.held_out} & {s.source for s in found.memory}
    assert found.held_out[0].source.startswith("Das Wort")
    assert demo.catalogs() == found  # the same split every time


def test_a_package_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "PACKAGES", ("no_such_shop",))
    with pytest.raises(UsageError, match=r"no_such_shop, which is not installed: run `make demo`"):
        demo.catalogs()
