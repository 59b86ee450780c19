"""Chores of a server: what time alone brings about, where no worker of Python does it."""

from __future__ import annotations

from headway.runtime.chores.sweep import Sweep
from headway.runtime.chores.timetable import TimetableChore
from headway.server.service import Service


def start_chores(service: Service) -> None:
    """Sweeps, and keeps the timetable's fires ahead, for as long as the server runs.

    Any number of servers and workers may do both at once.
    """
    keep = service.options.keep_trail_ms
    sweep = Sweep(service.store, service.timing, keep_trail_ms=keep)
    service.spawn(sweep.run(), "sweep")
    service.spawn(TimetableChore(service.store, service.timing).run(), "timetable")
