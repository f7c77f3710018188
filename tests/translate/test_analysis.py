"""Words and segments by match band, before anything is translated."""

from knnmt.translate.analysis import Band, analyze, band_of

from .test_fuzzy import made


def test_bands() -> None:
    store = made("Die Datei wurde nicht gefunden", "Konto schließen")
    texts = [
        "Konto schließen", "Konto schließen", "konto schließen!", "Die Datei wurde nicht gelöscht", "Ganz anders",
        "Ganz anders", "Konto öffnen",
    ]  # fmt: skip
    found = analyze(store, texts)
    assert {name: (band.segments, band.words) for name, band in found.bands.items()} == {
        "exact": (2, 4), "repetitions": (1, 2), "95-99": (1, 2), "85-94": (0, 0), "75-84": (1, 5), "50-74": (1, 2),
        "new": (1, 2),
    }  # fmt: skip
    assert found.total == Band(7, 17)


def test_without_a_store_only_repetitions_are_known() -> None:
    found = analyze(None, ["a b", "a  b", "c"])
    assert (found.bands["repetitions"].segments, found.bands["new"].segments) == (1, 2)


def test_edges_of_bands() -> None:
    scores = (1.0, 0.9999, 0.95, 0.85, 0.849, 0.75, 0.5, 0.49, 0.0)
    bands = ["exact", "95-99", "95-99", "85-94", "75-84", "75-84", "50-74", "new", "new"]
    assert [band_of(score) for score in scores] == bands
