"""What is taught is used: by every system, with every weight but 0, however many beams, at once, reopened, compacted.

100% matches are switched off: what is tested is that the search itself says what it was taught.
"""

import pytest

from knnmt.build.build import build
from knnmt.build.settings import BuildSettings
from knnmt.corpus.segment import Segment
from knnmt.datastore import Datastore
from knnmt.model.checkpoint import Model, load
from knnmt.retrieval.gate import Purpose
from knnmt.retrieval.tuned import Tuned
from knnmt.systems.settings import RetrievalSettings
from knnmt.systems.table import SYSTEMS
from knnmt.translate import TranslateSettings, Translator

from .retrieval.examples import random_gate

STORED = """
Der Hund schläft im Garten. | The dog sleeps in the garden.
Klicken Sie auf die Schaltfläche. | Click the button.
Die Datei konnte nicht gespeichert werden. | The file could not be saved.
Möchten Sie die Änderungen verwerfen? | Do you want to discard the changes?
Das Kennwort ist falsch. | The password is wrong.
Wählen Sie eine Sprache aus. | Choose a language.
Die Seite wurde nicht gefunden. | The page was not found.
Ihr Konto wurde angelegt. | Your account was created.
Bitte warten Sie einen Augenblick. | Please wait a moment.
Der Vorgang wurde abgebrochen. | The operation was cancelled.
"""
LESSONS = """
Klicken Sie auf Speichern. | Hit Store.
Die Datei konnte nicht gelesen werden. | This file is unreadable.
Möchten Sie die Seite verlassen? | Leave this page now?
Das Kennwort ist abgelaufen. | Your secret has expired, sorry.
Konto löschen | Close the account
Warenkorb | Trolley
"""
OTHERS = ["Der Hund läuft durch den Wald.", "Das Wetter ist heute schön.", "Wir treffen uns morgen um neun Uhr."]


def pairs(text: str) -> list[tuple[str, str]]:
    return [(source, target) for source, _, target in (line.partition(" | ") for line in text.strip().splitlines())]


@pytest.fixture(scope="module")
def model() -> Model:
    return load(device="cpu")


@pytest.fixture(scope="module")
def stores(model: Model, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Datastore]:
    """A store before its lessons, with them, opened again, and compacted."""
    folder = tmp_path_factory.mktemp("taught")
    lines = "".join(f"{source}\t{target}\n" for source, target in pairs(STORED))
    (folder / "corpus.tsv").write_text(lines, encoding="utf-8")
    found = {}
    for name in ("before", "at once", "compacted"):
        build([folder / "corpus.tsv"], model, folder / name, "de-en", BuildSettings(clean=None))
        found[name] = Datastore.open(folder / name)
        if name != "before":
            found[name].add([Segment(source, target) for source, target in pairs(LESSONS)], model)
    found["reopened"] = Datastore.open(folder / "at once")
    found["compacted"].compact(model)
    return found


def settings(system: str, weight: float | None, store: Datastore) -> RetrievalSettings | Tuned:
    """With λ by distance up to a weight, or by a gate that trusts nothing."""
    if weight is not None:
        return RetrievalSettings(system=system).weighing(weight)
    gate = random_gate(Purpose(system, store.manifest.key, store.manifest.metric)).leaning(-20.0)
    return Tuned(RetrievalSettings(system=system, adapt="learned"), gate)


@pytest.mark.parametrize("system", SYSTEMS)
def test_every_lesson_comes_out_as_taught_and_nothing_else_changes(
    model: Model, stores: dict[str, Datastore], system: str
) -> None:
    lessons = pairs(LESSONS)
    sources, targets = ([pair[side] for pair in lessons] for side in (0, 1))

    def translated(store: Datastore, weight: float | None, beam: int, texts: list[str]) -> list[str]:
        translator = Translator(model, store, retrieval=settings(system, weight, store))
        return [found.text for found in translator.translate(texts, TranslateSettings(beam=beam, exact=False))]

    for weight, beam in ((0.3, 1), (0.5, 4), (None, 1), (1e-9, 5)):
        before = translated(stores["before"], weight, beam, OTHERS)
        for name in ("at once", "compacted") if beam > 1 else ("reopened", "compacted"):
            assert translated(stores[name], weight, beam, sources + OTHERS) == targets + before, (name, weight, beam)
    base = [found.text for found in Translator(model).translate(sources, TranslateSettings(exact=False))]
    assert translated(stores["at once"], 0.0, 5, sources) == base
    assert not set(base) & set(targets)
