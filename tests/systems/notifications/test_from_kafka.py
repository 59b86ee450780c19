"""Notifications from a topic: accepted as over HTTP, each message once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.bridges.kafka.message import Incoming
from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.systems.notifications.from_kafka import NotificationSink
from tests.systems.notifications.notify_rig import NotifyRig, notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

HELLO = {"recipient": "ada", "channel": "email", "text": "hello"}


def incoming(offset: int, body: Any) -> Incoming:
    value = body if isinstance(body, bytes) else json.dumps(body).encode()
    return Incoming("notify", 2, offset, b"ada", value, {}, 0)


async def stored(notify: NotifyRig) -> int:
    return len((await notify.store.read(JobsQuery(limit=100))).rows)


async def test_message_read_twice_is_one_notification(tmp_path: Path) -> None:
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        sink = NotificationSink(notify.rig.service, notify.context)
        batch = [incoming(4, HELLO), incoming(5, HELLO), incoming(6, {**HELLO, "priority": "low"})]
        assert (await sink.put(batch)).created == [0, 1, 2]
        assert (await sink.put(batch)).created == []
        assert await stored(notify) == 3


async def test_dedupe_key_of_the_body_counts_across_messages(tmp_path: Path) -> None:
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        sink = NotificationSink(notify.rig.service, notify.context)
        body = {**HELLO, "dedupe_key": "once"}
        assert (await sink.put([incoming(4, body), incoming(5, body)])).created == [0]
        assert await stored(notify) == 1


async def test_message_without_a_valid_notification_is_refused_alone_with_its_reason(
    tmp_path: Path,
) -> None:
    async with notifying(tmp_path, work=False) as notify:
        await notify.ada()
        sink = NotificationSink(notify.rig.service, notify.context)
        put = await sink.put(
            [
                incoming(1, HELLO),
                incoming(2, b"nonsense"),
                incoming(3, {**HELLO, "recipient": "nobody"}),
                incoming(4, {**HELLO, "channel": "pigeon"}),
                incoming(5, {**HELLO, "scheduled_at": 1_700_000_000}),
                incoming(6, HELLO),
                incoming(7, json.dumps({**HELLO, "data": {"n": 1}}).replace("1", "1e400").encode()),
            ]
        )
        assert len(put.created) == await stored(notify) == 2
        assert all(isinstance(one, InvalidValue) for one in put.unreadable.values())
        reasons = {index: str(one) for index, one in put.unreadable.items()}
        assert sorted(reasons) == [1, 2, 3, 4, 6]
        assert "JSON" in reasons[1]
        # It contains no index, which would refer to the bridge's own batch.
        assert reasons[2].startswith("there is no recipient 'nobody'")
        assert "channel" in reasons[3]
        assert "Value error" not in str(reasons)
        assert "Number out of range" in reasons[6]
        assert "milliseconds" in reasons[4] or "1970" in reasons[4]
