"""What a recipient's preferences say of one send."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, cast

from headway.core.gates.hours import hours_spec, intervals, is_open
from headway.core.zone import DAY_MS
from headway.systems.notifications.names import Channel
from headway.systems.notifications.records import Recipient

STOPPED = f"{Channel.SMS}:STOP"
"""The opt-out by STOP, separate from others because START revokes only this one."""


def opted_out(recipient: Recipient, channel: Channel, category: str) -> str:
    """Which opt-out forbids a send; empty if none does.

    Urgent categories are no exception: a recipient who wrote STOP gets no one-time password either.
    """
    said: Collection[str] = recipient.preferences.get("opt_out", ())
    tries = (channel, f"{channel}:STOP", f"{channel}:{category}", f"*:{category}")
    return next((str(one) for one in tries if one in said), "")


def quiet_until(recipient: Recipient, now: int) -> int | None:
    """When the recipient's quiet hours end, ms UTC; None if there are none now."""
    spans = recipient.preferences.get("quiet_hours")
    if not spans:
        return None
    found = intervals(hours_spec(spans), recipient.tz, now, now + DAY_MS)
    if not is_open(found, now):
        return None
    return next(end for start, end in found if start <= now < end)


def addresses(recipient: Recipient, channel: Channel) -> Sequence[str]:
    """Where a recipient is reached by a channel; several devices, or one address, or none."""
    if channel is Channel.PUSH:
        return tuple(recipient.devices)
    one = cast("str | None", getattr(recipient, _COLUMNS[channel]))
    return () if one is None else (one,)


def without_address(recipient: Recipient, channel: Channel, address: str) -> dict[str, Any]:
    """What changes of a recipient whose address does not exist any more; empty for nothing."""
    if address not in addresses(recipient, channel):
        return {}
    if channel is Channel.PUSH:
        return {"devices": [one for one in recipient.devices if one != address]}
    return {_COLUMNS[channel]: None}


_COLUMNS = {
    Channel.SMS: "phone",
    Channel.EMAIL: "email",
    Channel.WEBHOOK: "webhook_url",
    Channel.APPRISE: "apprise",
}
