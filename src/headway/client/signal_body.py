"""A signal as a server is told it."""

from __future__ import annotations

from typing import assert_never

import msgspec

from headway.client.fields import Fields, filled
from headway.client.outcome_body import refuse_stage
from headway.contract.signals import Signal, SignalKind


def signal_body(signal: Signal) -> Fields:
    """The body that tells a signal; its key stands in the path.

    Args:
        signal: one event about one run.

    Returns:
        What is not empty.

    Raises:
        InvalidValue: it begins another attempt at another stage, which only a store is told.
    """
    if signal.stage:
        refuse_stage(f"event {signal.event!r}")
    said: Fields = {
        "event": signal.event,
        "body": None if signal.body is None else msgspec.Raw(signal.body),
        "extend": signal.extend_ms,
        "after": signal.after_ms,
        "reason": signal.reason,
        "candidate": signal.candidate,
        "offer": signal.offer or None,
        "known_as": signal.known_as,
    }
    match signal.kind:
        case SignalKind.FINAL:
            said["final"] = str(signal.decided)
        case SignalKind.PROGRESS:
            said["progress"] = True
        case SignalKind.NOTE:
            said["note"] = signal.label
        case _:
            assert_never(signal.kind)
    return filled(said)
