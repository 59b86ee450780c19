"""Each store operation, with each of its replies lost, has the same effect as one undisturbed."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count

from headway.contract.definitions import DeclareEntry, EntrySpec, FireRequest
from headway.contract.outcomes import Succeeded
from headway.contract.store import Store
from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.core.job import NewJob
from headway.core.timetable.schedule import Every
from headway.testing.clock import START_AT, FakeClock
from headway.testing.conformance.repeating import ACTS, Story
from headway.testing.conformance.rig import Rig
from headway.testing.dump import compare, dump
from tests.servers.proxy import Proxy

MOST_REPLIES = 16
"""An operation that takes more trips than this has failed to finish."""

NIGHTLY = EntrySpec(
    name="nightly",
    schedule=Every(60_000),
    job=NewJob(id="00000000-0000-4000-8000-0000000000bb", kind="tidy"),
)


async def _define_nightly(story: Story) -> None:
    await story.rig.define(DeclareEntry(spec=NIGHTLY))


async def _fire(story: Story) -> object:
    moments = (START_AT + 60_000, START_AT + 120_000)
    return await story.rig.store.fire(
        FireRequest(entry="nightly", revision=1, moments=moments, ahead_until=moments[-1])
    )


async def _settle_what_runs(story: Story) -> None:
    await story.worker.settle(*(Succeeded(job.id, 1) for job in story.jobs[:3]))


async def _beat(story: Story) -> None:
    await story.worker.beat()


BEFORE: dict[str, Callable[[Story], Awaitable[None]]] = {
    # A store may have a connection for beats alone: replies while it opens are not the beat's.
    "beat": _beat,
    "beat leaving": _beat,
    "claim": _settle_what_runs,
    "fire": _define_nightly,
}
"""Preparations that give an operation something to do."""

OPERATIONS: dict[str, Callable[[Story], Awaitable[object]]] = {**ACTS, "fire": _fire}


async def lose_each_reply(
    proxy: Proxy, call: Callable[[], Awaitable[object]], first: bytes = b""
) -> list[type]:
    """Repeat a call until none of its replies is lost: first the first one is, then the second, …

    Args:
        proxy: the proxy in between.
        call: a call that can be repeated.
        first: text in the request whose reply is lost before all others, such as COMMIT: there, the
            operation was done and its reply is lost.

    Returns:
        The exception raised for each lost reply; NoneType if there was none.
    """
    raised: list[type] = []
    if first:
        proxy.lose_reply_to(first)
        raised.append(type(await _caught(call)))
        assert proxy.cut.is_set(), f"nothing was sent with {first!r}"
    lost = 0
    while lost < MOST_REPLIES:
        left = count(-lost)
        lost += 1
        proxy.lose_reply_to(lambda _sent: next(left) == 0)  # noqa: B023  (of this round)
        error = await _caught(call)
        if not proxy.cut.is_set():
            assert error is None, f"nothing was lost, and yet: {error}"
            proxy.resume()
            return raised
        raised.append(type(error))
    message = f"after {MOST_REPLIES} repeats there was still a reply to lose"
    raise AssertionError(message)


async def _caught(call: Callable[[], Awaitable[object]]) -> Exception | None:
    try:
        await call()
    except (StoreUnavailable, OutcomeUnknown) as error:
        return error
    return None


async def differences(
    name: str,
    undisturbed: Store,
    disturbed: Store,
    clocks: tuple[FakeClock, FakeClock],
    way: Proxy,
    *,
    first: bytes = b"",
) -> tuple[list[str], list[type]]:
    """Perform an operation on two stores, on one of them with each reply lost once.

    Args:
        name: name of the operation.
        undisturbed: an empty store.
        disturbed: an empty store behind the proxy.
        clocks: clocks of the two stores.
        way: the proxy.
        first: as in `lose_each_reply`.

    Returns:
        The differences between the two stores, and the exception raised for each lost reply.
    """
    one = await Story.begin(Rig(undisturbed, clocks[0]))
    other = await Story.begin(Rig(disturbed, clocks[1]))
    for story in (one, other):
        if name in BEFORE:
            await BEFORE[name](story)
    await OPERATIONS[name](one)
    raised = await lose_each_reply(way, lambda: OPERATIONS[name](other), first)
    found = compare(await dump(undisturbed), await dump(disturbed))
    await other.rig.check()
    return [str(difference) for difference in found], raised
