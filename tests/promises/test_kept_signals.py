"""Signals that no run awaits are kept up to a maximum number, and forgotten after an hour."""

from __future__ import annotations

import sys

import pytest

from headway.contract.signals import Signal, SignalResult
from headway.core.errors import StoreUnavailable
from headway.stores.ledger.verbs.signal import KEPT_MS
from headway.testing.conformance.rig import Rig
from tests.servers.stores import SERVERS_SAMPLED

# Redis has the maximum in its scripts, where a test cannot change it.
ON_THE_LEDGER = [one for one in SERVERS_SAMPLED if "redis" not in str(one)]
VERB = sys.modules["headway.stores.ledger.verbs.signal"]


@pytest.mark.parametrize("rig", ON_THE_LEDGER, indirect=True)
async def test_signals_beyond_the_maximum_kept_are_refused_until_others_are_forgotten(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VERB, "KEPT_MOST", 2)
    events = [Signal(key=f"nobody-{n}", event="end") for n in range(3)]
    for event in events[:2]:
        assert (await rig.store.signal(event)).answer is SignalResult.KEPT
    with pytest.raises(StoreUnavailable, match="2 signals are kept"):
        await rig.store.signal(events[2])
    assert (await rig.store.signal(events[0])).answer is SignalResult.KEPT
    await rig.pass_time(KEPT_MS - 1)
    with pytest.raises(StoreUnavailable):
        await rig.store.signal(events[2])
    await rig.pass_time(1)
    assert (await rig.store.signal(events[2])).answer is SignalResult.KEPT
