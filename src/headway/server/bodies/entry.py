"""A timetable entry as a request says it."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import ConfigDict, Field

from headway.contract.definitions import EntrySpec
from headway.core.job import NewJob
from headway.core.timetable.misfire import MisfirePolicy
from headway.core.timetable.schedule import Schedule
from headway.core.timetable.text import parse_schedule
from headway.server.bodies.body import Body
from headway.server.bodies.job import JobBody, RecurringBody
from headway.server.bodies.words import Positive, Text, When


class EntryBody(Body):
    """When something recurs, and what it is."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "schedule": "cron: 0 3 * * *",
                    "tz": "Europe/Berlin",
                    "job": {"kind": "noop", "lane": "nightly"},
                }
            ]
        }
    )

    schedule: Text = Field(
        description='"cron: 0 3 * * *", "every 30m" or "at 09:00 mon-fri".',
        examples=["cron: 0 3 * * *"],
    )
    tz: Text = Field(default="UTC", description="The zone of a cron or a time of day.")
    anchor: When | None = Field(default=None, description="The first fire of an interval.")
    job: RecurringBody = Field(
        description="What each fire makes.", examples=[{"kind": "noop", "lane": "nightly"}]
    )
    misfire: Literal["skip", "once", "all"] = Field(
        default="once", description="Of fires missed in an outage."
    )
    misfire_cap: Positive = Field(default=100, description='The most that "all" makes up for.')
    overlap: Literal["skip", "one", "all"] = Field(
        default="skip", description="Of a fire while an earlier one still waits or runs."
    )
    enabled: bool | None = Field(
        default=None, description="Whether it fires; a new one does, another stays as it is."
    )

    def body_of(self, id: str) -> JobBody:  # noqa: A002  (the field's name)
        """What each fire makes, as a job that could be sent."""
        fields: Any = {**dict(self.job), "id": id}
        return JobBody.model_construct(**fields)

    def read_schedule(self, now: int) -> Schedule:
        """When it fires; an anchor may count from `now`.

        Raises:
            InvalidValue: the schedule or the zone is not understood.
        """
        anchor_at = 0 if self.anchor is None else self.anchor.resolved(now)
        return parse_schedule(self.schedule, tz=self.tz, anchor_at=anchor_at)

    def spec(self, name: str, schedule: Schedule, job: NewJob) -> EntrySpec:
        """What stores keep of it."""
        return EntrySpec(
            name=name,
            schedule=schedule,
            job=job,
            misfire=MisfirePolicy(self.misfire),
            misfire_cap=self.misfire_cap,
            overlap=self.overlap,
            enabled=self.enabled is not False,
        )
