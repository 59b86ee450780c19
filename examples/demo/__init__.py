"""The demo: departures, calls, repairs, mail and automations, live in the terminal."""

from __future__ import annotations
