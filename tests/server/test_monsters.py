"""Monstrous requests, with the embedded model: others are served beside them, and what nobody waits for ends."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest

from knnmt import Translator
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.work_items import DecodingOptions
from knnmt.translate import TranslateSettings

from .standin import Asked

HOW = DecodingOptions(beam=2)


@pytest.fixture(scope="module")
def translator() -> Translator:
    return Translator("mini-de-en", device="cpu")


@pytest.fixture
def worker(translator: Translator) -> Iterator[Asked]:
    worker = Asked(translator, ServerSettings(time_limit=60), Metrics())
    worker.start()
    yield worker
    worker.abandon()
    worker.stop()


@pytest.fixture
def steps(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When the model made its steps."""
    made: list[float] = []
    step = translator.model.transformer.step

    def counted(*arguments: Any) -> Any:
        made.append(time.monotonic())
        return step(*arguments)

    monkeypatch.setattr(translator.model.transformer, "step", counted)
    return made


@pytest.mark.parametrize("monster", ["<a " * 16_000, "Der Hund schläft im Garten. " * 1700])
def test_a_small_request_beside_a_monster_is_as_it_is_alone(
    translator: Translator, worker: Asked, steps: list[float], monster: str
) -> None:
    small = "Der Ausschuss hat den Vorschlag angenommen."
    (alone,) = translator.translate([small], TranslateSettings(beam=2))
    before = len(steps)

    async def story() -> None:
        large = asyncio.create_task(worker.ask([monster], HOW))
        while len(steps) < before + 5:
            await asyncio.sleep(0.01)
        (found,) = await asyncio.wait_for(worker.ask([small], HOW), 20)
        assert found == alone
        assert not large.done()
        large.cancel()
        await asyncio.sleep(0)
        given_up = time.monotonic()
        await worker.ask([small], HOW)
        size = len(steps)
        await asyncio.sleep(0.3)
        assert len(steps) == size  # nothing of the monster is decoded any more
        assert time.monotonic() - given_up < 20

    asyncio.run(story())


def test_slices_make_the_translation_that_the_whole_has(translator: Translator, worker: Asked) -> None:
    text = " ".join(f"Der Hund Nummer {number} schläft im Garten, und die Katze sieht ihn." for number in range(20))
    how = DecodingOptions(beam=2, n_best=2)
    (expected,) = translator.translate([text], TranslateSettings(beam=2, n_best=2))
    ((found,),) = [asyncio.run(worker.ask([text], how))]
    assert (found.text, found.tokens) == (expected.text, expected.tokens)
    assert [each.tokens for each in found.alternatives] == [each.tokens for each in expected.alternatives]
    assert found.score == pytest.approx(expected.score, abs=1e-5)


def test_a_loop_is_cut_and_ordinary_text_is_not(translator: Translator) -> None:
    loop = "<a " * 32  # it goes on for 321 tokens
    plain, cut = (TranslateSettings(stop_loops=stop) for stop in (False, True))
    (found,) = translator.translate([loop], cut)
    (size,) = translator.sizes([loop])
    assert size < len(found.tokens) < size + 70
    ordinary = ["Der Hund schläft im Garten.", "Ja, ja, ja, ja, ja, ja, ja!", "Inhalt " + ". " * 40 + "7"]
    ordinary.append(" ".join(f"Der Hund Nummer {number} schläft." for number in range(12)))
    together = translator.translate([*ordinary, loop], cut)
    assert [each.tokens for each in together[:-1]] == [each.tokens for each in translator.translate(ordinary, plain)]
    assert together[-1].tokens == found.tokens  # whatever it is translated with


@pytest.mark.parametrize("text", ["😀😀", "Guten Morgen! 😀😀", "Das Haus 🏠🏠🏠 ist groß."])
def test_faces_stay_as_many_as_they_are(translator: Translator, text: str) -> None:
    (found,) = translator.translate([text])
    assert [sign for sign in found.text if ord(sign) > 0xFFFF] == [sign for sign in text if ord(sign) > 0xFFFF]
    assert found.problems == ()
