"""Bodies of workers: claims, beats and settlements."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, ConfigDict, Field, model_validator

from headway.core.errors import PayloadTooLarge
from headway.core.job import MAX_BATCH, MAX_RESULT
from headway.server.bodies.base import (
    Body,
    FailFastList,
    JobId,
    Name,
    RunNumber,
    Span,
    Text,
    When,
    max_fields,
    without_nul,
)
from headway.server.bodies.jobs import MOST_GATES, GateBody, JobBody
from headway.server.long_polling.claiming import (
    LEASE_MS,
    MAX_REQUEST,
    MAX_WANTED,
    MAX_WEIGHT,
    read_lanes,
)


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
LanesList = Annotated[
    FailFastList[Name | LaneWeightBody], Field(min_length=1, max_length=MAX_WANTED)
]


MOST_AFTER = 10_000
"""Lanes of which a worker says where its last claim stopped."""


class ClaimBody(Body):
    """A claim: the worker, and the work it takes."""

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
        description="Your number of this claim, growing; repeat it to get a lost reply again. "
        "Left out, the server numbers it.",
    )
    after: Annotated[dict[str, int], max_fields(MOST_AFTER)] = Field(
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


MOST_RUNNING = 10_000
"""Runs of one beat."""

_encode = msgspec.json.Encoder().encode


class RunBody(Body):
    """Which run is meant."""

    job: JobId = Field(description="The job's id.")
    run: RunNumber = Field(description="The run, from the claim's reply.")


class RunningBody(RunBody):
    """A run that the worker holds."""

    progress: Any = Field(default=None, description="New progress, shown as it is: any JSON.")

    def told_progress(self) -> bytes | None:
        """Return the progress as JSON; None for none.

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
    running: FailFastList[RunningBody] = Field(
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
    lanes: FailFastList[Name] = Field(
        default=[],
        max_length=MAX_WANTED,
        description="What it serves, for those who ask why nothing runs.",
        examples=[["calls"]],
    )
    name: Text = Field(
        default="", description="A label: host, process, what it is.", examples=["host7:4711"]
    )
    leaving: bool = Field(default=False, description="It stops, and holds nothing more.")


MOST_THEN = MAX_BATCH
"""Jobs that follow from one outcome."""
MOST_CLOSED = 16
"""Gates that one outcome closes."""
HAND_OVER_MS = 1_800_000
"""How long a hand-over may go unanswered, if nothing is said."""


ErrorText = Annotated[str, Field(max_length=1_000_000), AfterValidator(without_nul)]
"""An error, a traceback: the first 16,000 characters are kept."""


class CloseBody(Body):
    """A gate to be closed, for example because a provider refused for now."""

    gate: Name = Field(description="Its resolved name.", examples=["rate:twilio"])
    after: Span | None = Field(default=None, description="For how long; else see `until`.")
    until: When | None = Field(default=None, description="Until when; neither: for good.")
    reason: Text = Field(default="", description="For people.")


class OutcomeBody(RunBody):
    """What all outcomes share."""

    then: FailFastList[JobBody] = Field(
        default_factory=list, max_length=MOST_THEN, description="Jobs to create in the same step."
    )
    close: FailFastList[CloseBody] = Field(
        default_factory=list, max_length=MOST_CLOSED, description="Gates to close in the same step."
    )


class SucceededBody(OutcomeBody):
    """The work is done."""

    outcome: Literal["succeeded"]
    result: Any = Field(default=None, description="For the record: any JSON.")


class FailedBody(OutcomeBody):
    """The attempt failed: retried by the job's policy, or dead when attempts are used up."""

    outcome: Literal["failed"]
    error: ErrorText = Field(default="", description="What went wrong.")
    after: Span | None = Field(default=None, description="Replaces the policy's delay.")
    until: When | None = Field(default=None, description="Replaces the policy's delay.")


class DeadBody(OutcomeBody):
    """No further attempt is wanted."""

    outcome: Literal["dead"]
    reason: Text = Field(default="failed", description="Why, in a word or a sentence.")
    error: ErrorText = Field(default="", description="What went wrong.")


class SnoozedBody(OutcomeBody):
    """Not now: due again later; the attempt is repeated."""

    outcome: Literal["snoozed"]
    after: Span | None = Field(default=None, description="For how long; or say `until`.")
    until: When | None = Field(default=None, description="Until when.")
    reason: Text = Field(default="", description="Why, in a word or a sentence.")

    @model_validator(mode="after")
    def _says_how_long(self) -> SnoozedBody:
        if self.after is None and self.until is None:
            message = "give either after or until"
            raise ValueError(message)
        return self


class NextStageBody(OutcomeBody):
    """Goes on with the next stage and its gates; uses no attempt."""

    outcome: Literal["next_stage"]
    stage: Name = Field(description="Of the job's kind.")
    gates: FailFastList[Name | GateBody] | None = Field(
        default=None,
        max_length=MOST_GATES,
        description="Declared gates of that stage; left out where the server's App has the kind.",
    )


class ReleasedBody(OutcomeBody):
    """Handed back unused; the attempt is repeated."""

    outcome: Literal["released"]
    reason: Text = Field(default="handed back", description="For people.")


class HandedOverBody(OutcomeBody):
    """The outside world has it now: it awaits a signal for the key, or the deadline."""

    outcome: Literal["handed_over"]
    key: Name = Field(
        description="Under which signals find it; the run's `ref` will do.", examples=["CA17…"]
    )
    timeout: Span = Field(default=HAND_OVER_MS, description="From now to the deadline.")


class KnownAsBody(OutcomeBody):
    """A further key under which signals find the run."""

    outcome: Literal["known_as"]
    key: Name = Field(description="Such as the provider's id.")


class ReturnedBody(OutcomeBody):
    """The handler of a run that has handed over is through; only recorded."""

    outcome: Literal["returned"]
    error: ErrorText = Field(default="", description="If it failed.")


class GaveBackBody(OutcomeBody):
    """Frees one gate early."""

    outcome: Literal["gave_back"]
    gate: Name = Field(description="Its name, or a pool's.")


class UnfitBody(OutcomeBody):
    """A cascade's candidate is passed over; the next turn begins."""

    outcome: Literal["unfit"]
    reason: Text = Field(default="", description="For people.")


AnyOutcome = (
    SucceededBody
    | FailedBody
    | DeadBody
    | SnoozedBody
    | NextStageBody
    | ReleasedBody
    | HandedOverBody
    | KnownAsBody
    | ReturnedBody
    | GaveBackBody
    | UnfitBody
)
"""One of these, distinguished by `outcome`."""


class SettlementBody(Body):
    """What a worker's runs have to say."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "worker": "worker-1",
                    "outcomes": [
                        {
                            "job": "0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11",
                            "run": 1,
                            "outcome": "succeeded",
                        }
                    ],
                }
            ]
        }
    )

    worker: Name = Field(description="As in its claims.", examples=["worker-1"])
    outcomes: FailFastList[Annotated[AnyOutcome, Field(discriminator="outcome")]] = Field(
        min_length=1,
        max_length=MAX_BATCH,
        description="Each is checked and written by itself, in this order.",
        examples=[
            [
                {
                    "job": "0197a3c4-5d6e-7f80-9123-456789abcdef",
                    "run": 1,
                    "outcome": "succeeded",
                    "result": {"sent": True},
                }
            ]
        ],
    )
