"""The demo: a real day of departures beside a small call centre, live in the terminal."""

from __future__ import annotations
