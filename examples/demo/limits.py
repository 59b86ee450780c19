"""The limits of the departures, written down a second time for the checker."""

from __future__ import annotations

from datetime import timedelta

from headway.lab.scenario import Scenario


def limits(speed: float) -> Scenario:
    """What must hold of every run of a flight.

    Args:
        speed: seconds of the day in one second of the demo.

    Returns:
        A scenario with its gates alone: nothing of it is played.
    """
    return Scenario.model_validate(
        {
            "start": "2013-01-15T05:00:00-05:00",
            "gates": {
                "runway:{origin}": {
                    "kind": "rate",
                    "limit": 1,
                    "per": timedelta(seconds=75) / speed,
                },
                "aircraft:{aircraft}": {"kind": "slots", "capacity": 1},
                "agents:{origin}": {
                    "kind": "pool",
                    "members": dict.fromkeys(["1", "2", "3", "4"], 1),
                },
            },
            "kinds": {},
            "arrivals": [],
            "workers": [],
        }
    )
