"""A claim as a request asks for it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from headway.core.job import MAX_BATCH
from headway.server.bodies.body import Body, Several, few
from headway.server.bodies.words import Name, Span
from headway.server.pulling.lease import LEASE_MS
from headway.server.pulling.numbers import MAX_REQUEST
from headway.server.pulling.wanted import MAX_WANTED, MAX_WEIGHT, read_lanes


class LaneWeightBody(Body):
    """A lane and its share of a claim."""

    name: Name = Field(description="A name, or a pattern such as `send_*`.", examples=["send_*"])
    weight: int = Field(default=1, ge=1, le=MAX_WEIGHT, description="Its share.")


LanesLine = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200_000,
        description="Names or patterns with commas between them, each with its weight after a "
        "colon, if it has one.",
    ),
]
LanesList = Annotated[Several[Name | LaneWeightBody], Field(min_length=1, max_length=MAX_WANTED)]


MOST_AFTER = 10_000
"""Lanes of which a worker says where its last claim stopped."""


class ClaimBody(Body):
    """Who asks for work, and for which."""

    worker: Name = Field(
        description="Names this worker among those of your token; another token's worker of the "
        "same name is another worker.",
        examples=["worker-1"],
    )
    lanes: LanesLine | LanesList = Field(
        description='Where to claim from: "a,b:2", or a list of names and of name with weight.',
        examples=["calls,mail:2", ["calls", {"name": "send_*", "weight": 2}]],
    )
    order: Literal["weighted", "strict"] = Field(
        default="weighted",
        description='"weighted" shares a claim by weight, "strict" empties an earlier lane first.',
    )
    max: int = Field(default=1, ge=1, le=MAX_BATCH, description="The most jobs.")
    free: int | None = Field(
        default=None, ge=0, le=MAX_BATCH, description="The most jobs with gates; max if left out."
    )
    lease: Span = Field(
        default=LEASE_MS,
        description="How long the worker's runs live without a beat, 1s to 24h.",
        examples=["30s"],
    )
    wait: Span = Field(
        default=0,
        description="How long to wait for the first job; the server ends a longer wait at 60s.",
        examples=["25s"],
    )
    request: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REQUEST,
        description="Your number of this claim, growing; repeat it to hear a lost reply again. "
        "Left out, the server numbers it.",
    )
    after: Annotated[dict[str, int], few(MOST_AFTER)] = Field(
        default={}, max_length=MOST_AFTER, description="From the reply before, if you keep it."
    )

    @property
    def weighted_lanes(self) -> tuple[tuple[str, int], ...]:
        """Names or patterns, each with its weight, as they were asked for."""
        if isinstance(self.lanes, str):
            return read_lanes(self.lanes)
        return tuple(
            (one, 1) if isinstance(one, str) else (one.name, one.weight) for one in self.lanes
        )
