"""Replies to clients that disconnect while the reply is written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from headway.runtime.timing import REAL
from headway.server.routes.claims import ClientGone, ClientWatch, TrackedReply


@pytest.mark.parametrize("gone", [True, False])
async def test_reply_written_to_a_just_closed_connection_is_not_complete(gone: bool):
    """As with uvicorn over asyncio: a closing connection accepts all writes and drops them."""
    lost = asyncio.Event()
    unread: list[bool] = []

    async def receive() -> Any:
        await lost.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and gone:
            # EOF was read in this iteration; the protocol is notified in the next one.
            asyncio.get_running_loop().call_soon(lost.set)

    watch = ClientWatch(receive)
    await REAL.pause(0)
    reply = TrackedReply(b"{}", watch=watch, timing=REAL, on_unread=lambda: unread.append(True))
    await reply({}, receive, send)
    assert (reply.is_whole, unread) == (not gone, [True] * gone)


@pytest.mark.parametrize("fault", ["broken", "not read"])
async def test_reply_that_is_not_written_is_reported_though_no_disconnect_is_seen(
    fault: str, monkeypatch: pytest.MonkeyPatch
):
    """The client's machine may have vanished without closing its connection."""
    monkeypatch.setattr("headway.server.routes.claims.WRITE_WITHIN_S", 0)
    unread: list[bool] = []

    async def receive() -> Any:
        await asyncio.Event().wait()

    async def send(_: Any) -> None:
        if fault == "broken":
            raise ConnectionResetError
        await asyncio.Event().wait()

    watch = ClientWatch(receive)
    reply = TrackedReply(b"{}", watch=watch, timing=REAL, on_unread=lambda: unread.append(True))
    await reply({}, receive, send)
    assert (reply.is_whole, unread) == (False, [True])


async def test_result_of_cancelled_work_is_undone():
    async def receive() -> Any:
        return {"type": "http.disconnect"}

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "jobs"
        raise AssertionError

    undone: list[str] = []
    with pytest.raises(ClientGone):
        await ClientWatch(receive).during(work(), undone.append)
    assert undone == ["jobs"]
