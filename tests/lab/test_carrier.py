from __future__ import annotations

from collections.abc import Mapping

from headway.lab.outside_world import Carrier, DrawnOutcome
from headway.lab.virtual_time import VirtualLoop, run_virtually
from headway.runtime.timing import pause

TALKED = DrawnOutcome(talk_ms=65_000)


def carry(
    calls: list[tuple[str, str, DrawnOutcome, float]],
    channels: Mapping[str, int],
    asks: float | None = None,
) -> tuple[Carrier, list[tuple[str, int]], list[str]]:
    """Dial each (ref, line, outcome, after seconds); return carrier, reports and answers."""
    delivered: list[tuple[str, int]] = []
    answers: list[str] = []

    async def main(loop: VirtualLoop) -> Carrier:
        async def deliver(ref: str) -> None:
            delivered.append((ref, loop.passed_ms))

        carrier = Carrier(channels=channels, deliver=deliver)
        for ref, line, outcome, after in calls:
            loop.call_later(
                after, lambda r=ref, n=line, f=outcome: carrier.dial(r, line=n, outcome=f)
            )
        if asks is not None:
            loop.call_later(asks, lambda: answers.append(carrier.status("a:1")))
        await pause(3_600)
        await carrier.close()
        return carrier

    return run_virtually(main, 0), delivered, answers


def test_end_of_a_call_is_reported_once() -> None:
    carrier, delivered, _ = carry([("a:1", "x", TALKED, 0)], {"x": 1})
    assert delivered == [("a:1", 65_000)]
    assert carrier.status("a:1") == "ended"
    assert carrier.violations == []


def test_status_of_a_call_is_available_during_and_after_it() -> None:
    for asks, answer in ((1, "running"), (64, "running"), (66, "ended")):
        assert carry([("a:1", "x", TALKED, 0)], {}, asks)[2] == [answer]
    assert carry([], {}, 1)[2] == ["unknown"]


def test_lost_webhook_never_arrives_though_the_call_ends() -> None:
    carrier, delivered, _ = carry([("a:1", "x", DrawnOutcome(talk_ms=1, lost=True), 0)], {})
    assert delivered == []
    assert carrier.status("a:1") == "ended"
    assert carrier.live["x"] == 0


def test_late_webhook_arrives_late_and_a_duplicate_twice() -> None:
    outcome = DrawnOutcome(talk_ms=2_000, late_ms=90_000, twice=True)
    _, delivered, _ = carry([("a:1", "x", outcome, 0)], {})
    assert delivered == [("a:1", 92_000), ("a:1", 92_500)]


def test_overloaded_line_is_detected() -> None:
    calls = [("a:1", "x", TALKED, 0), ("b:1", "x", TALKED, 64), ("c:1", "x", TALKED, 66)]
    carrier, *_ = carry(calls, {"x": 1})
    assert carrier.violations == ["x carries 2 calls on 1 channels with b:1"] * 1 + [
        "x carries 2 calls on 1 channels with c:1"
    ]
    assert carry([calls[0], calls[2]], {"x": 1})[0].violations == []


def test_call_dialled_twice_is_detected() -> None:
    carrier, *_ = carry([("a:1", "x", TALKED, 0), ("a:1", "y", TALKED, 200)], {})
    assert carrier.violations == ["a:1 was dialled twice"]
