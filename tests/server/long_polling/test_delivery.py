from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway.runtime.timing import REAL
from headway.server.long_polling.delivery import ClientGone, ClientWatch


class Client:
    """The receiving end of a request: nothing, until it goes away."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}


async def stubborn(began: asyncio.Event) -> str:
    """Brings something, although it is cancelled."""
    began.set()
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        return "a job"
    return ""


async def test_what_work_brought_for_a_client_that_is_gone_is_undone() -> None:
    client, began, undone = Client(), asyncio.Event(), list[str]()
    presence = ClientWatch(client.receive)
    asking = asyncio.create_task(presence.during(stubborn(began), undone.append))
    await began.wait()
    client.gone.set()
    with pytest.raises(ClientGone):
        await asking
    assert undone == ["a job"]


async def test_what_work_brought_for_a_request_that_is_cancelled_is_undone() -> None:
    client, began, undone = Client(), asyncio.Event(), list[str]()
    presence = ClientWatch(client.receive)
    asking = asyncio.create_task(presence.during(stubborn(began), undone.append))
    await began.wait()
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    assert undone == ["a job"]
    assert not asyncio.all_tasks() - {asyncio.current_task()}


async def test_what_work_brought_for_a_client_that_is_there_is_its_own() -> None:
    client, undone = Client(), list[str]()
    presence = ClientWatch(client.receive)

    async def work() -> str:
        return "a job"

    assert await presence.during(work(), undone.append) == "a job"
    assert not presence.is_gone
    assert undone == []
    presence.close()


async def test_work_that_fails_ends_the_watch() -> None:
    client = Client()
    presence = ClientWatch(client.receive)

    async def work() -> str:
        message = "no"
        raise ValueError(message)

    with pytest.raises(ValueError, match="no"):
        await presence.during(work(), lambda _: None)
    async with asyncio.timeout(120):
        while asyncio.all_tasks() - {asyncio.current_task()}:
            await REAL.pause(0)
