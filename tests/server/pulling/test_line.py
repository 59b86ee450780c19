from __future__ import annotations

import asyncio

from headway.contract.claims import ClaimReply
from headway.runtime.timing import REAL
from headway.server.pulling.line import Line, Look


def found(*, seen: int = 1) -> Look:
    reply = ClaimReply(jobs=[], now=1, lease_until=2, next_at=None, seen=seen)
    return Look(reply=reply, lanes=("a",), request=1)


def used_up() -> Look:
    reply = ClaimReply(jobs=[], now=1, lease_until=2, next_at=1, again=True)
    return Look(reply=reply, lanes=("a",), request=1)


async def test_who_is_stirred_while_it_looks_looks_again() -> None:
    slept: list[Look] = []

    async def sleep(look: Look) -> None:
        slept.append(look)
        await asyncio.Event().wait()

    line = Line(sleep, REAL)
    looks = 0

    async def look() -> Look:
        nonlocal looks
        looks += 1
        if looks == 1:
            line.stir()
            return found(seen=5)
        return used_up()

    assert await line.serve(line.place(), look, 20) == used_up()
    assert (looks, slept) == (2, [])


async def test_a_line_sleeps_on_the_newest_look_that_found_nothing() -> None:
    slept: list[int] = []

    async def sleep(look: Look) -> None:
        slept.append(look.reply.seen)

    line = Line(sleep, REAL)
    looks = iter((found(seen=3), found(seen=7), used_up()))

    async def look() -> Look:
        return next(looks)

    await line.serve(line.place(), look, 20)
    assert slept == [3, 7]


async def test_one_who_is_sent_home_before_it_waits_does_not_wait() -> None:
    async def sleep(_: Look) -> None:
        await asyncio.Event().wait()

    line = Line(sleep, REAL)
    place = line.place()

    async def look() -> Look:
        line.send_home(place)
        return found()

    assert await line.serve(place, look, 20) is None
    assert line.is_idle
