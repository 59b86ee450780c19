"""The demo: a day of departures, a small call centre and a mail room, live in the terminal."""

from __future__ import annotations
