"""An App whose close is cancelled has released its store anyway."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

import headway as hw
from headway.core.errors import StoreUnavailable
from headway.runtime.timing import pause
from tests.servers.stores import DURABLE, NewUrl

LIMIT = 60


@pytest.mark.parametrize("kind", DURABLE)
async def test_closing_cancelled_before_a_thread_is_free_still_completes(
    kind: str, new_url: NewUrl
) -> None:
    loop, go_on = asyncio.get_running_loop(), threading.Event()
    app = hw.App(new_url(kind))
    sent = await app.send_async("noop")
    store = app.store
    with ThreadPoolExecutor(1) as threads:
        loop.set_default_executor(threads)
        busy = loop.run_in_executor(None, go_on.wait, LIMIT)
        closing = asyncio.create_task(app.close_async())
        for _ in range(3):
            await pause(0)
            closing.cancel()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await busy
    loop.set_default_executor(ThreadPoolExecutor())
    app.use(store)
    with pytest.raises(StoreUnavailable, match="closed"):
        await app.find_async(sent.id)
