"""Hand-overs and the signals that end them: many at once, each job with its own gate."""

from __future__ import annotations

from bench.bench import Bench
from bench.child import child
from bench.places.place import Place
from bench.systems import with_headway

HANDED = "hand-overs, 64 at once"
SIGNALS = "signals, 64 at once"
AIMS = {"postgres": 5_000, "postgres, 1 ms": 4_000, "postgres, 5 ms": 2_000}
"""Goals in signals per second, by the name of the ground."""


def handed_and_signalled(bench: Bench) -> None:
    """Measure how many jobs are handed over, and then ended by signals, per second."""
    found: dict[str, list[float]] = {HANDED: [], SIGNALS: []}

    def measure(place: Place) -> float:
        with child(with_headway.hand_over_and_signal, place.url, bench.scale.signals) as running:
            handed, signalled = running.receive()
        found[HANDED].append(handed)
        lost = bench.scale.signals - with_headway.succeeded(place.url)
        bench.delivered("headway", f"{bench.scale.signals:,} signals", lost, 0)
        return signalled

    found[SIGNALS] = bench.in_turns({"headway": measure}).get("headway", [])
    for case, values in found.items():
        if not values:
            return
        bench.add(case, "headway", "/s", values, f"{bench.scale.signals:,} jobs")
    rate, aim = bench.notebook.find(SIGNALS, "headway"), AIMS.get(bench.ground.name)
    if rate and aim:
        bench.goal(f"signals a second against {aim:,}", rate.median / aim, least=1)
