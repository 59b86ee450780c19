"""The day of the `departures` example, sped up."""

from __future__ import annotations

import json
import os
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import headway as hw
from examples.departures.__main__ import DAY, first_moment
from examples.departures.app import declare_departures
from examples.departures.pace import OPENS, SPEED, START, Pace
from headway.contract.operate import ActRequest, Verb

Notify = Callable[[str, str], None]


class Airports:
    """Three airports for a day.

    Args:
        store: The store of its jobs.
        speed: Seconds of the day per second of the demo.
        notify: Called for each event, with a word and a sentence.

    Attributes:
        app: Its kinds and gates.
        pace: Converts between times of the day and of the demo.
        sent: The ids of its flights.
        left: Number of flights that have departed.
    """

    def __init__(self, store: hw.Store, speed: float, notify: Notify) -> None:
        self.app = hw.App(store=store, name="departures")
        self.pace = Pace(
            speed=speed,
            start_at=datetime.now(UTC) + timedelta(seconds=1),
            opens_at=first_moment(DAY),
        )
        self.sent: set[str] = set()
        self.left = 0
        self._notify = notify
        declare_departures(self.app, speed)
        self.app.middleware(self._watch)

    async def import_day(self) -> None:
        """Create a job for each flight of the day; jobs of cancelled flights are cancelled."""
        # The example's importer reads the pace from the environment.
        os.environ[SPEED] = str(self.pace.speed)
        os.environ[START] = self.pace.start_at.isoformat()
        os.environ[OPENS] = self.pace.opens_at.isoformat()
        jobs: list[hw.NewJob] = []
        cancelled: list[str] = []
        for line in DAY.read_text().splitlines():
            for made in self.app.importers["departures"](json.loads(line)):
                if isinstance(made, hw.CancelledJob):
                    cancelled.append(made.job.id)
                    jobs.append(made.job)
                else:
                    jobs.append(made)
        sent = await self.app.send_many_async(jobs)
        self.sent = {one.id for one in sent}
        await self.app.store.act(
            ActRequest(
                request="cancelled flights",
                ids=tuple(cancelled),
                verb=Verb.CANCEL,
                author="demo",
                reason="the flight was cancelled",
            )
        )

    async def _watch(self, job: hw.Job, call_next: Callable[[], Awaitable[Any]]) -> object:
        answer = await call_next()
        if job.kind != "land":
            self.left += 1
            plan = json.loads(job.claimed.args)
            late = (datetime.now(UTC) - job.due_at) * self.pace.speed // timedelta(minutes=1)
            said = f"{plan['flight']} {plan['origin']} to {plan['dest']}"
            self._notify("left", f"{said}, {late} min after its time" if late > 5 else said)
        return answer

    def clock(self) -> datetime:
        """Return the current time of the day."""
        passed = (datetime.now(UTC) - self.pace.start_at) * self.pace.speed
        return self.pace.opens_at + max(passed, timedelta())
