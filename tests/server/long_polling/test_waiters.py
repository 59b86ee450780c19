from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway.contract.claims import ClaimReply, ClaimRequest
from headway.core.errors import InvalidValue
from headway.runtime.timing import REAL
from headway.server.long_polling.claiming import LaneSelection, LongPoll, PollClaimer
from headway.server.long_polling.waiters import ClaimAttempt, Waiters


def found(*, seen: int = 1) -> ClaimAttempt:
    reply = ClaimReply(jobs=[], now=1, lease_until=2, next_at=None, seen=seen)
    return ClaimAttempt(reply=reply, lanes=("a",), request=1)


def used_up() -> ClaimAttempt:
    reply = ClaimReply(jobs=[], now=1, lease_until=2, next_at=1, again=True)
    return ClaimAttempt(reply=reply, lanes=("a",), request=1)


async def test_waiter_woken_during_its_claim_claims_again() -> None:
    slept: list[ClaimAttempt] = []

    async def sleep(attempt: ClaimAttempt) -> None:
        slept.append(attempt)
        await asyncio.Event().wait()

    line = Waiters(sleep, REAL)
    looks = 0

    async def attempt() -> ClaimAttempt:
        nonlocal looks
        looks += 1
        if looks == 1:
            line.wake()
            return found(seen=5)
        return used_up()

    assert await line.serve(line.add(), attempt, 20) == used_up()
    assert (looks, slept) == (2, [])


async def test_queue_sleeps_on_the_newest_claim_that_found_nothing() -> None:
    slept: list[int] = []

    async def sleep(attempt: ClaimAttempt) -> None:
        slept.append(attempt.reply.seen)

    line = Waiters(sleep, REAL)
    looks = iter((found(seen=3), found(seen=7), used_up()))

    async def attempt() -> ClaimAttempt:
        return next(looks)

    await line.serve(line.add(), attempt, 20)
    assert slept == [3, 7]


async def test_waiter_dismissed_before_it_waits_does_not_wait() -> None:
    async def sleep(_: ClaimAttempt) -> None:
        await asyncio.Event().wait()

    line = Waiters(sleep, REAL)
    place = line.add()

    async def attempt() -> ClaimAttempt:
        line.cancel(place)
        return found()

    assert await line.serve(place, attempt, 20) is None
    assert line.is_idle


async def test_claim_that_is_refused_passes_its_turn_to_the_next_waiter() -> None:
    async def sleep(_: ClaimAttempt) -> None:
        await asyncio.Event().wait()

    line = Waiters(sleep, REAL)
    is_waiting = asyncio.Event()

    async def refused() -> ClaimAttempt:
        await is_waiting.wait()
        message = "the claim is not valid"
        raise InvalidValue(message)

    async def attempt() -> ClaimAttempt:
        return used_up()

    first = asyncio.ensure_future(line.serve(line.add(), refused, 20))
    await REAL.pause(0)
    second = asyncio.ensure_future(line.serve(line.add(), attempt, 20))
    await REAL.pause(0)
    is_waiting.set()
    with pytest.raises(InvalidValue):
        await first
    assert await second == used_up()


async def test_poll_that_continues_a_round_also_examines_the_flows_before_it() -> None:
    starts: list[dict[str, int]] = []

    class Empty:
        async def claim(self, request: ClaimRequest) -> ClaimReply:
            starts.append(dict(request.after))
            return ClaimReply(jobs=[], now=1, lease_until=2, next_at=None)

    store: Any = Empty()
    poll = LongPoll(worker="w", wanted=LaneSelection(lanes=(("a", 1),)), after={"a": 7})
    await PollClaimer(store, REAL).attempt(poll, ())
    assert starts == [{"a": 7}, {}]
