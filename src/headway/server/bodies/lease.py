"""A beat as a request says it."""

from __future__ import annotations

from typing import Any

import msgspec
from pydantic import ConfigDict, Field

from headway.core.errors import PayloadTooLarge
from headway.core.job import MAX_RESULT
from headway.server.bodies.body import Body, Several
from headway.server.bodies.words import JobId, Name, RunNumber, Span, Text
from headway.server.pulling.lease import LEASE_MS
from headway.server.pulling.numbers import MAX_REQUEST
from headway.server.pulling.wanted import MAX_WANTED

MOST_RUNNING = 10_000
"""Runs of one beat."""

_encode = msgspec.json.Encoder().encode


class RunBody(Body):
    """Which run is meant."""

    job: JobId = Field(description="The job's id.")
    run: RunNumber = Field(description="The run, from the claim's reply.")


class RunningBody(RunBody):
    """A run that the worker holds."""

    progress: Any = Field(default=None, description="New progress, for people to see: any JSON.")

    def told_progress(self) -> bytes | None:
        """The progress as JSON; None for none.

        Raises:
            PayloadTooLarge: it is above the limit.
        """
        if self.progress is None:
            return None
        data = _encode(self.progress)
        if len(data) > MAX_RESULT:
            message = f"the progress of job {self.job} has {len(data)} bytes"
            raise PayloadTooLarge(message, hint=f"at most {MAX_RESULT}")
        return data


class LeaseBody(Body):
    """A worker says that it lives, and what it holds."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "worker": "worker-1",
                    "running": [{"job": "0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11", "run": 1}],
                }
            ]
        }
    )

    worker: Name = Field(description="As in its claims.", examples=["worker-1"])
    running: Several[RunningBody] = Field(
        default=[],
        max_length=MOST_RUNNING,
        description="Each run that it holds; those that it has handed over, too.",
    )
    request: int = Field(
        default=0,
        ge=0,
        le=MAX_REQUEST,
        description="The number of the last claim whose reply it has. What that or an earlier "
        "claim brought and `running` does not list never reached it, and is handed back.",
    )
    lease: Span = Field(
        default=LEASE_MS,
        description="How long its runs live from now, 1s to 24h.",
        examples=["30s"],
    )
    lanes: Several[Name] = Field(
        default=[],
        max_length=MAX_WANTED,
        description="What it serves, for those who ask why nothing runs.",
        examples=[["calls"]],
    )
    name: Text = Field(
        default="", description="For people: host, process, what it is.", examples=["host7:4711"]
    )
    leaving: bool = Field(default=False, description="It stops, and holds nothing more.")
