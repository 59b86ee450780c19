from __future__ import annotations

from collections.abc import Mapping

from headway.lab.outside import Carrier, Fate, Webhook
from headway.lab.virtual_time import VirtualLoop, run_virtually
from headway.runtime.timing import pause

TALKED = Fate(outcome="talked", ring_ms=5_000, talk_ms=60_000)


def carry(
    calls: list[tuple[str, str, Fate, float]],
    channels: Mapping[str, int],
    asks: float | None = None,
) -> tuple[Carrier, list[tuple[str, bool, int]], list[str]]:
    """Dials each (ref, line, fate, after seconds); returns the carrier and what it told when."""
    told: list[tuple[str, bool, int]] = []
    answers: list[str] = []

    async def main(loop: VirtualLoop) -> Carrier:
        async def hear(webhook: Webhook) -> None:
            told.append((webhook.event, webhook.again, loop.passed_ms))

        carrier = Carrier(channels=channels, deliver=hear)
        for ref, line, fate, after in calls:
            loop.call_later(
                after, lambda r=ref, n=line, f=fate: carrier.dial(r, line=n, to="+1", fate=f)
            )
        if asks is not None:
            loop.call_later(asks, lambda: answers.append(carrier.status("a:1")))
        await pause(3_600)
        await carrier.close()
        return carrier

    return run_virtually(main, 0), told, answers


def test_a_call_rings_is_talked_and_its_end_is_told_once() -> None:
    carrier, told, _ = carry([("a:1", "x", TALKED, 0)], {"x": 1})
    assert told == [("CA00000001.ended", False, 65_000)]
    assert carrier.calls["a:1"].ended == 65.0
    assert carrier.counts == {"talked": 1, "webhook late": 0}
    assert carrier.violations == []


def test_the_status_of_a_call_is_told_while_it_lasts_and_after() -> None:
    for asks, answer in ((1, "ringing"), (30, "in-progress"), (66, "ended")):
        assert carry([("a:1", "x", TALKED, 0)], {}, asks)[2] == [answer]
    assert carry([], {}, 1)[2] == ["unknown"]


def test_a_lost_webhook_never_comes_though_the_call_ends() -> None:
    carrier, told, _ = carry([("a:1", "x", Fate(outcome="talked", talk_ms=1, lost=True), 0)], {})
    assert told == []
    assert carrier.status("a:1") == "ended"
    assert carrier.live["x"] == 0


def test_a_late_webhook_comes_late_and_a_doubled_one_twice_with_one_event() -> None:
    fate = Fate(outcome="busy", ring_ms=2_000, late_ms=90_000, twice=True)
    _, told, _ = carry([("a:1", "x", fate, 0)], {})
    assert told == [("CA00000001.ended", False, 92_000), ("CA00000001.ended", True, 92_500)]


def test_a_line_that_carries_too_many_calls_is_seen() -> None:
    calls = [("a:1", "x", TALKED, 0), ("b:1", "x", TALKED, 64), ("c:1", "x", TALKED, 66)]
    carrier, *_ = carry(calls, {"x": 1})
    assert carrier.violations == ["x carries 2 calls on 1 channels with b:1"] * 1 + [
        "x carries 2 calls on 1 channels with c:1"
    ]
    assert carrier.peak["x"] == 2
    assert carry([calls[0], calls[2]], {"x": 1})[0].violations == []


def test_a_call_that_is_dialled_twice_is_seen() -> None:
    carrier, *_ = carry([("a:1", "x", TALKED, 0), ("a:1", "y", TALKED, 200)], {})
    assert carrier.violations == ["a:1 was dialled twice"]
