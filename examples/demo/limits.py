"""The limits of the departures, repeated for the checker."""

from __future__ import annotations

from datetime import timedelta

from headway.lab.scenario import Scenario


def limits(speed: float) -> Scenario:
    """Return the limits as a scenario that has only gates, and is not run.

    Args:
        speed: Seconds of the day per second of the demo.
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
