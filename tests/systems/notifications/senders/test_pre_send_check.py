"""Every sender runs a final check: the connection exists, no byte of the message has been sent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from headway.runtime.timing import pause
from headway.systems.notifications.sender import Accepted, Message, MessageSender
from headway.systems.pre_send_check import Withdrawn, checking
from tests.systems.notifications.senders.apns_server import apns
from tests.systems.notifications.senders.messages import message
from tests.systems.notifications.senders.smtp_server import smtp
from tests.systems.notifications.senders.test_email import by_sendgrid
from tests.systems.notifications.senders.test_email import sender as by_smtp
from tests.systems.notifications.senders.test_push import sender as by_apns
from tests.systems.notifications.senders.test_sms import sender as by_sms
from tests.systems.notifications.senders.test_webhook_and_apprise import by_apprise, url_of, webhook
from tests.systems.telephony.accounts import MESSAGE, TO
from tests.systems.telephony.raw_server import raw_server, says

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


class Way(NamedTuple):
    sender: MessageSender
    message: Message
    got: list[Any]


@asynccontextmanager
async def to_smtp(folder: Path) -> AsyncIterator[Way]:
    async with smtp(folder) as box, by_smtp(box) as one:
        yield Way(one, message("ada@example.net"), box.got)


@asynccontextmanager
async def to_sendgrid(_: Path) -> AsyncIterator[Way]:
    async with raw_server(says(202)) as end, by_sendgrid(end) as one:
        yield Way(one, message("ada@example.net"), end.seen)


@asynccontextmanager
async def to_sms(_: Path) -> AsyncIterator[Way]:
    async with raw_server(says(201, {"sid": MESSAGE})) as end, by_sms(end.url) as one:
        yield Way(one, message(TO), end.seen)


@asynccontextmanager
async def to_webhook(_: Path) -> AsyncIterator[Way]:
    async with raw_server(says(204)) as end, webhook() as one:
        yield Way(one, message(f"{end.url}/hook"), end.seen)


@asynccontextmanager
async def to_apprise(_: Path) -> AsyncIterator[Way]:
    async with raw_server(says(200)) as end, by_apprise() as one:
        yield Way(one, message(url_of(end)), end.seen)


@asynccontextmanager
async def to_apns(folder: Path) -> AsyncIterator[Way]:
    async with apns(folder) as server, by_apns(server) as one:
        yield Way(one, message("a1" * 32), server.got)


WAYS = [to_smtp, to_sendgrid, to_sms, to_webhook, to_apprise, to_apns]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_message_withdrawn_at_the_last_moment_is_not_sent(way: Any, tmp_path: Path):
    seen: list[int] = []

    async with way(tmp_path) as one:

        async def check() -> bool:
            seen.append(len(one.got))
            raise Withdrawn

        with checking(check), pytest.raises(Withdrawn):
            await one.sender.send(one.message)
        assert (seen, one.got) == ([0], [])
        # The next message is sent, whatever happened to that connection.
        assert isinstance(await one.sender.send(one.message), Accepted)
        assert len(one.got) == 1


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
async def test_check_comes_after_every_wait_and_before_the_message(way: Any, tmp_path: Path):
    begun, goes_on = asyncio.Event(), asyncio.Event()

    async with way(tmp_path) as one:

        async def check() -> bool:
            if goes_on.is_set():
                return False
            begun.set()
            await goes_on.wait()
            return True

        with checking(check):
            sending = asyncio.create_task(one.sender.send(one.message))
        async with asyncio.timeout(60):
            await begun.wait()
        assert one.got == []
        goes_on.set()
        assert isinstance(await sending, Accepted)
        assert len(one.got) == 1


async def test_concurrent_devices_share_a_connection_to_apns(tmp_path: Path):
    reads = 0

    async def check() -> bool:
        nonlocal reads
        reads += 1
        await pause(0)
        return reads <= 20

    async with apns(tmp_path) as server, by_apns(server) as one:
        devices = [replace(message(f"{n:02x}" * 32), text="x" * 3_000) for n in range(1, 21)]
        with checking(check):
            outcomes = await asyncio.gather(*(one.send(device) for device in devices))
    assert all(isinstance(each, Accepted) for each in outcomes)
    assert len(server.got) == 20
    assert server.connections == 1
