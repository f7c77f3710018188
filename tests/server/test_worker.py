"""The thread that owns the model: what it translates together, in which order, and what it refuses."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from knnmt.corpus import Segment
from knnmt.errors import DataError, UsageError
from knnmt.server.metrics import Metrics
from knnmt.server.settings import ServerSettings
from knnmt.server.work_items import DecodingOptions, UnavailableError
from knnmt.translate import Translation

from .standin import Asked, StandIn, Store

HOW = DecodingOptions(beam=1)


@asynccontextmanager
async def working(standin: StandIn, **settings: Any) -> AsyncIterator[Asked]:
    worker = Asked(standin.as_translator(), ServerSettings(**settings), Metrics())
    worker.start()
    try:
        yield worker
    finally:
        standin.open.set()
        await asyncio.to_thread(worker.stop)


async def until(true: Callable[[], bool]) -> None:
    for _ in range(2000):
        if true():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came to that")


def later(worker: Asked, texts: list[str], how: DecodingOptions = HOW) -> "asyncio.Task[list[str]]":
    async def translated() -> list[str]:
        return [found.text for found in await worker.ask(texts, how)]

    return asyncio.create_task(translated())


async def while_busy(standin: StandIn, worker: Asked) -> "asyncio.Task[list[str]]":
    """Something is being translated, and does not end until the stand-in is opened."""
    standin.open.clear()
    first = later(worker, ["erst"])
    await until(lambda: bool(standin.threads))
    return first


def test_what_waits_is_translated_together() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, [f"a{n}", f"b{n}"]) for n in range(20)]
            await asyncio.sleep(0.02)
            standin.open.set()
            assert await first == ["erst'"]
            assert [await each for each in waiting] == [[f"a{n}'", f"b{n}'"] for n in range(20)]
        assert [len(batch) for batch in standin.batches] == [1, 40]
        assert standin.threads == {"model"}

    asyncio.run(story())


def test_a_batch_holds_so_many_tokens_and_no_more() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=20) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, ["eins zwei drei"]) for _ in range(12)]  # four tokens each
            await asyncio.sleep(0.02)
            standin.open.set()
            await asyncio.gather(first, *waiting)
        assert [len(batch) for batch in standin.batches] == [1, 5, 5, 2]

    asyncio.run(story())


def test_a_large_request_gives_others_a_turn() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=20) as worker:
            first = await while_busy(standin, worker)
            large = later(worker, [f"x{n}" for n in range(35)])  # two tokens each
            small = later(worker, ["klein"])
            await asyncio.sleep(0.02)
            standin.open.set()
            assert await small == ["klein'"]
            assert not large.done()
            assert await large == [f"x{n}'" for n in range(35)]
            await first
        assert ["klein" in batch for batch in standin.batches].index(True) == 2

    asyncio.run(story())


def test_a_text_larger_than_a_batch_is_a_batch() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=5) as worker:
            assert len((await later(worker, ["wort " * 50]))[0].split()) == 50

    asyncio.run(story())


def test_only_what_is_asked_for_alike_is_translated_together() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, ["abcdef"[n]], DecodingOptions(beam=1 + n % 2)) for n in range(6)]
            await asyncio.sleep(0.02)
            standin.open.set()
            await asyncio.gather(first, *waiting)
        assert standin.batches == [["erst"], ["a", "c", "e"], ["b", "d", "f"]]

    asyncio.run(story())


def test_nothing_overtakes_a_lesson() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin) as worker:
            first = await while_busy(standin, worker)
            before = later(worker, ["Speichern"])
            lesson = asyncio.create_task(worker.call(lambda: standin.add([Segment("Speichern", "Save", "")])))
            after = later(worker, ["Speichern"])
            await asyncio.sleep(0.02)
            standin.open.set()
            await asyncio.gather(first, lesson)
            assert await before == ["Speichern'"]
            assert await after == ["Save"]

    asyncio.run(story())


def test_a_lesson_holds_up_only_what_searches_its_store() -> None:
    async def story() -> None:
        one, other = StandIn(store=Store("one")), StandIn(store=Store("other"))
        async with working(one) as worker:

            def ask(standin: StandIn, text: str) -> "asyncio.Task[list[Translation]]":
                return asyncio.create_task(worker.translate(standin.as_translator(), [text], HOW))

            first = await while_busy(one, worker)
            waiting = [ask(one, "a"), ask(other, "b")]
            lesson = asyncio.create_task(worker.call(lambda: one.add([Segment("c", "C", "")]), one.store.path))
            waiting += [ask(one, "c"), ask(other, "d")]
            await asyncio.sleep(0.02)
            one.open.set()
            await asyncio.gather(first, lesson)
            assert [(await each)[0].text for each in waiting] == ["a'", "b'", "C", "d'"]
        assert one.batches == [["erst"], ["a"], ["c"]]
        assert other.batches == [["b", "d"]]

    asyncio.run(story())


def test_a_fault_is_that_of_the_request_that_has_it(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin) as worker:
            first = await while_busy(standin, worker)
            good, bad = later(worker, ["gut"]), later(worker, ["explode geheim"])
            await asyncio.sleep(0.02)
            standin.open.set()
            await first
            assert await good == ["gut'"]
            with pytest.raises(RuntimeError):
                await bad
            with pytest.raises(UsageError):
                await later(worker, ["gut"], DecodingOptions(system="none"))
            assert await later(worker, ["es geht weiter"]) == ["es' geht' weiter'"]

    asyncio.run(story())
    assert "RuntimeError" in caplog.text
    assert "geheim" not in caplog.text


def test_a_full_queue_takes_nothing_more() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, queue=3) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, ["warten"]) for _ in range(3)]
            await asyncio.sleep(0.02)
            with pytest.raises(UnavailableError) as refused:
                await worker.ask(["zu viel"], HOW)
            assert 1 <= refused.value.retry_after <= 60
            long_job = asyncio.create_task(asyncio.to_thread(worker.call_blocking, lambda: 7))  # it waits however long
            standin.open.set()
            await asyncio.gather(first, *waiting)
            assert await long_job == 7

    asyncio.run(story())


def test_more_than_can_be_done_in_time_is_not_taken_on() -> None:
    """A request that would only be answered 504 is told at once to come back later."""

    async def story() -> None:
        standin = StandIn(pause=0.1)
        async with working(standin, time_limit=1.0, batch_tokens=20, queue=1000) as worker:
            await later(worker, ["ein Satz mit fünf Wörtern"] * 10)  # now it knows how long that takes
            first = await while_busy(standin, worker)
            waiting = [later(worker, ["ein Satz mit fünf Wörtern"]) for _ in range(100)]
            await asyncio.sleep(0.05)
            standin.open.set()
            answers = await asyncio.gather(first, *waiting, return_exceptions=True)
            refused = [each for each in answers if isinstance(each, UnavailableError)]
            assert 20 < len(refused) < 98

    asyncio.run(story())


def test_what_is_short_comes_before_all_that_waits() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=4) as worker:
            first = await while_busy(standin, worker)
            waiting = later(worker, ["a", "b", "c", "d", "e", "f"])
            await asyncio.sleep(0.02)
            aside = asyncio.create_task(worker.call_soon(lambda: len(standin.batches)))
            await asyncio.sleep(0.02)
            standin.open.set()
            assert await aside <= 1  # between two steps, or between two batches
            await asyncio.gather(first, waiting)

    asyncio.run(story())


def test_what_nobody_waits_for_any_more_is_not_translated() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, time_limit=0.1) as worker:
            first = await while_busy(standin, worker)
            late = later(worker, ["zu spät"])
            for each in (first, late):
                with pytest.raises(TimeoutError):
                    await each
            standin.open.set()
            assert await later(worker, ["weiter"]) == ["weiter'"]
        assert ["zu spät"] not in standin.batches

    asyncio.run(story())


def test_a_stop_finishes_what_is_there_and_takes_nothing_more() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=4) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, ["a", "b", "c", "d"]) for _ in range(5)]
            await asyncio.sleep(0.02)
            stopping = threading.Thread(target=worker.stop)
            stopping.start()
            await until(lambda: worker.trouble is not None)
            with pytest.raises(UnavailableError):
                await worker.ask(["zu spät"], HOW)
            standin.open.set()
            await asyncio.gather(first, *waiting)
            await asyncio.to_thread(stopping.join)

    asyncio.run(story())


LONG = "lang lang lang lang"  # more tokens than a quarter of the batches below


def test_a_small_request_is_let_in_between_two_steps_of_a_large_one() -> None:
    async def story() -> None:
        standin = StandIn(pause=0.01)
        standin.steps[LONG] = 1000
        async with working(standin, batch_tokens=16) as worker:
            large = later(worker, [LONG])
            await until(lambda: bool(standin.stepped))
            for _ in range(2):  # and again, once the large one has had its turn
                assert await asyncio.wait_for(later(worker, ["klein"]), 5) == ["klein'"]
            assert not large.done()
            large.cancel()
        assert standin.batches == [["klein"], ["klein"]]

    asyncio.run(story())


def test_a_small_request_shares_no_batch_with_a_large_one() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=16) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, [text]) for text in (LONG, "klein", LONG, "winzig")]
            await asyncio.sleep(0.02)
            standin.open.set()
            await asyncio.gather(first, *waiting)
        assert standin.batches == [["erst"], [LONG, LONG], ["klein", "winzig"]]

    asyncio.run(story())


def test_more_than_a_batch_holds_is_translated_in_full_batches_whatever_the_sizes() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=16) as worker:
            first = await while_busy(standin, worker)
            waiting = [later(worker, [text]) for text in (LONG, "klein", LONG, "winzig", LONG, "fein")]
            await asyncio.sleep(0.02)
            standin.open.set()
            await asyncio.gather(first, *waiting)
        assert standin.batches == [["erst"], [LONG, "klein", LONG, "winzig"], [LONG], ["fein"]]

    asyncio.run(story())


def test_a_small_request_shares_no_batch_with_slices_of_a_larger_one_in_a_crowd() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, batch_tokens=16) as worker:
            first = await while_busy(standin, worker)
            sliced = later(worker, ["x"] * 20)  # two tokens each
            waiting = [later(worker, ["klein"]) for _ in range(12)]
            await asyncio.sleep(0.02)
            standin.open.set()
            await asyncio.gather(first, sliced, *waiting)
        assert standin.batches[1:4] == [["x"] * 8, ["klein"] * 8, ["klein"] * 4]

    asyncio.run(story())


def test_nothing_is_let_in_before_a_lesson_that_came_first() -> None:
    async def story() -> None:
        standin = StandIn(pause=0.01)
        standin.steps[LONG] = 100
        async with working(standin, batch_tokens=16) as worker:
            large = later(worker, [LONG])
            await until(lambda: bool(standin.stepped))
            lesson = asyncio.create_task(worker.call(lambda: standin.add([Segment("klein", "small", "")])))
            await asyncio.sleep(0.02)
            assert await later(worker, ["klein"]) == ["small"]
            await asyncio.gather(large, lesson)
        assert standin.batches == [[LONG], ["klein"]]

    asyncio.run(story())


def test_a_text_that_is_too_long_for_the_model_is_served_in_slices() -> None:
    async def story() -> None:
        standin = StandIn()
        standin.model.max_source = 8
        async with working(standin, batch_tokens=20) as worker:
            text = " ".join(f"w{n}" for n in range(100))
            assert (await later(worker, ["kurz", text, "gut"]))[1].split() == [f"w{n}'" for n in range(100)]
        assert max(len(" ".join(batch).split()) for batch in standin.batches) < 20

    asyncio.run(story())


def test_what_was_given_up_ends_after_the_step_in_hand() -> None:
    async def story() -> None:
        standin = StandIn(pause=0.01)
        standin.steps["endlos"] = 10_000
        async with working(standin, time_limit=0.2) as worker:
            with pytest.raises(TimeoutError):
                await later(worker, ["endlos"])
            stepped = standin.stepped
            assert await later(worker, ["weiter"]) == ["weiter'"]
            assert standin.stepped - stepped < 10
        assert standin.batches == [["weiter"]]

    asyncio.run(story())


def test_too_many_tokens_are_refused() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, max_tokens=10) as worker:
            with pytest.raises(DataError, match=r"request \(12\) exceeds text limit \(10\) of tokens"):
                await later(worker, ["eins zwei drei"] * 3)
            await later(worker, ["eins zwei drei vier"] * 2)
        assert len(standin.batches) == 1

    asyncio.run(story())


def test_a_worker_that_does_not_get_on_is_not_ready() -> None:
    async def story() -> None:
        standin = StandIn()
        async with working(standin, time_limit=0.2) as worker:
            assert worker.trouble is None
            first = await while_busy(standin, worker)
            await until(lambda: worker.trouble is not None)
            with pytest.raises(TimeoutError):
                await first
            standin.open.set()
            await until(lambda: worker.trouble is None)
            standin.steps["langsam"], standin.pause = 10, 0.05
            with pytest.raises(TimeoutError):
                await later(worker, ["langsam"])  # slow, but it gets on
            assert worker.trouble is None

    asyncio.run(story())


def test_a_stop_does_not_wait_for_what_does_not_end() -> None:
    async def story() -> None:
        standin = StandIn(pause=0.01)
        standin.steps["endlos"] = 100_000
        async with working(standin) as worker:
            endless = later(worker, ["endlos"])
            await until(lambda: bool(standin.stepped))
            waiting = later(worker, ["wartet"], DecodingOptions(beam=2))
            await asyncio.sleep(0.02)
            begun = time.monotonic()
            await asyncio.to_thread(worker.stop, 0.2)
            assert time.monotonic() - begun < 5
            for each in (endless, waiting):
                with pytest.raises(UnavailableError, match="shutting down"):
                    await each
            with pytest.raises(UnavailableError):
                await worker.call_soon(lambda: 1)

    asyncio.run(story())


def test_a_batch_that_takes_no_longer_than_it_should_is_not_interrupted() -> None:
    async def story() -> None:
        standin = StandIn(pause=0.01)
        standin.steps[LONG] = 80  # longer than a turn, and shorter than a batch may take
        async with working(standin, batch_tokens=16) as worker:
            large = later(worker, [LONG])
            await until(lambda: bool(standin.stepped))
            assert await later(worker, ["klein"]) == ["klein'"]
            await large
        assert standin.batches == [[LONG], ["klein"]]

    asyncio.run(story())
