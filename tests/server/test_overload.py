"""More requests than can be translated in time: those too many hear so early."""

import asyncio

from knnmt.server.work_items import UnavailableError

from .standin import StandIn
from .test_worker import HOW, later, while_busy, working


def test_what_cannot_be_done_in_time_is_refused_early() -> None:
    """Hundreds of requests that come before it is known how long a batch takes: those too many hear so at once."""

    async def story() -> None:
        standin = StandIn(pause=0.2)
        async with working(standin, batch_tokens=64, time_limit=2, queue=400) as worker:
            refused: list[int] = []  # batches that had been translated by then

            async def ask(number: int) -> None:
                try:
                    await worker.ask([f"drei kleine Wörter{number}"], HOW)
                except UnavailableError:
                    refused.append(len(standin.batches))

            answers = await asyncio.gather(*map(ask, range(300)), return_exceptions=True)
        assert len(refused) > 100
        assert sorted(refused)[len(refused) // 2] <= 3
        assert sum(isinstance(each, TimeoutError) for each in answers) < 20  # of a machine that stands still

    asyncio.run(story())


def test_a_crowd_at_a_server_that_has_not_translated_yet_is_refused_before_it_waits() -> None:
    """Throughput is not known then; what is admitted goes by a cautious guess."""

    async def story() -> None:
        standin = StandIn()
        async with working(standin, time_limit=4) as worker:
            first = await while_busy(standin, worker)
            crowd = [later(worker, ["x" * 99]) for _ in range(100)]  # of 33 tokens
            await asyncio.sleep(0.05)
            refused = [each for each in crowd if each.done() and isinstance(each.exception(), UnavailableError)]
            assert len(refused) == 100 - 25  # half of the time limit is 800 tokens
            standin.open.set()
            await asyncio.gather(first, *(each for each in crowd if each not in refused))

    asyncio.run(story())


def test_when_the_model_becomes_slow_those_who_wait_hear_so_at_once() -> None:
    """They were accepted while it was fast. Most are told after the first slow batch, not when their time is up."""

    async def story() -> None:
        standin = StandIn(pause=0.01)
        async with working(standin, batch_tokens=64, time_limit=4, queue=400) as worker:
            for number in range(5):
                await worker.ask([f"ein Satz mit vielen Wörtern {number} {each}" for each in range(12)], HOW)
            standin.pause, fast = 0.4, len(standin.batches)
            refused: list[int] = []  # slow batches that had been translated by then

            async def ask(number: int) -> None:
                try:
                    await worker.ask([f"drei kleine Wörter{number}"], HOW)
                except UnavailableError:
                    refused.append(len(standin.batches) - fast)

            await asyncio.gather(*map(ask, range(300)), return_exceptions=True)
        assert len(refused) > 100
        assert sum(batches <= 1 for batches in refused) > len(refused) / 2

    asyncio.run(story())
