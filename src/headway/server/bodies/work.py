"""Bodies of workers: claims, beats and settlements."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from pydantic import AfterValidator, Field, model_validator

from headway.contract.outcomes import HAND_OVER_MS
from headway.core.errors import InvalidValue, PayloadTooLarge
from headway.core.job import MAX_BATCH, MAX_RESULT
from headway.runtime.worker.worker_options import LEASE_MS
from headway.server.bodies.base import (
    Body,
    FailFastList,
    JobId,
    Name,
    RunNumber,
    Span,
    Text,
    When,
    examples,
    max_fields,
    without_nul,
)
from headway.server.bodies.jobs import MOST_GATES, GateBody, JobBody
from headway.server.long_polling.claiming import MAX_REQUEST, MAX_WANTED, MAX_WEIGHT, read_lanes


class LaneWeightBody(Body):
    """A lane and its share of a claim."""

    name: Name = Field(description="Lane name, or a pattern such as `send_*`.", examples=["send_*"])
    weight: int = Field(default=1, ge=1, le=MAX_WEIGHT, description="Its share of the claim.")


LanesLine = Annotated[
    str,
    Field(
        min_length=1,
        max_length=200_000,
        description="Names or patterns, separated by commas, each optionally followed by a colon "
        "and its weight.",
    ),
]
LanesList = Annotated[
    FailFastList[Name | LaneWeightBody], Field(min_length=1, max_length=MAX_WANTED)
]


MOST_AFTER = 10_000
"""Maximum number of lanes in `after`."""


def _cursor(number: int) -> int:
    # A store's integer; not a limit of the schema, because clients only send it back.
    if not -(2**63) <= number < 2**63:
        message = f"{number!r:.40} is not a position that a claim returned"
        raise InvalidValue(message, hint="pass `after` of the previous reply, or omit it")
    return number


class ClaimBody(Body):
    """A claim: the worker, and the work that it takes."""

    worker: Name = Field(
        description="Name of this worker, unique within your token; the same name under another "
        "token is another worker.",
        examples=["worker-1"],
    )
    lanes: LanesLine | LanesList = Field(
        description='Lanes to claim from: "a,b:2", or a list of names, or of names with weights.',
        examples=["calls,mail:2", ["calls", {"name": "send_*", "weight": 2}]],
    )
    order: Literal["weighted", "strict"] = Field(
        default="weighted",
        description='"weighted" shares a claim by weight, "strict" empties earlier lanes first.',
    )
    max: int = Field(default=1, ge=1, le=MAX_BATCH, description="Maximum number of jobs.")
    free: int | None = Field(
        default=None,
        ge=0,
        le=MAX_BATCH,
        description="Maximum number of jobs with gates (default: max).",
    )
    lease: Span = Field(
        default=LEASE_MS,
        description="How long the worker's runs stay valid without a heartbeat, 1s to 24h.",
        examples=["30s"],
    )
    wait: Span = Field(
        default=0,
        description="How long to wait for the first job; the server ends longer waits after 60s.",
        examples=["25s"],
    )
    request: int | None = Field(
        default=None,
        ge=1,
        le=MAX_REQUEST,
        description="Your own, increasing number of this claim; repeat it to get a lost reply "
        "again. If omitted, the server numbers the claim.",
    )
    after: Annotated[dict[str, Annotated[int, AfterValidator(_cursor)]], max_fields(MOST_AFTER)] = (
        Field(
            default={},
            max_length=MOST_AFTER,
            description="`after` of the previous reply, if you keep it.",
        )
    )

    @property
    def weighted_lanes(self) -> tuple[tuple[str, int], ...]:
        """Names or patterns with their weights, in the order of the request."""
        if isinstance(self.lanes, str):
            return read_lanes(self.lanes)
        return tuple(
            (one, 1) if isinstance(one, str) else (one.name, one.weight) for one in self.lanes
        )


MOST_RUNNING = 10_000
"""Maximum number of runs in a beat."""

_encode = msgspec.json.Encoder().encode


class RunBody(Body):
    """Which run is meant."""

    job: JobId = Field(description="Id of the job.")
    run: RunNumber = Field(description="Run number from the claim's reply.")


class RunningBody(RunBody):
    """A run that the worker holds."""

    progress: Any = Field(default=None, description="New progress, shown unchanged: any JSON.")

    def encoded_progress(self) -> bytes | None:
        """Return the progress as JSON, if there is any.

        Raises:
            PayloadTooLarge: the progress is above the limit.
        """
        if self.progress is None:
            return None
        data = _encode(self.progress)
        if len(data) > MAX_RESULT:
            message = f"the progress of job {self.job} has {len(data)} bytes"
            raise PayloadTooLarge(message, hint=f"at most {MAX_RESULT}")
        return data


class LeaseBody(Body):
    """A worker's heartbeat, with the runs that it holds."""

    model_config = examples(
        {
            "worker": "worker-1",
            "running": [{"job": "0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11", "run": 1}],
        }
    )

    worker: Name = Field(description="Name of the worker, as in its claims.", examples=["worker-1"])
    running: FailFastList[RunningBody] = Field(
        default=[],
        max_length=MOST_RUNNING,
        description="All runs that the worker holds, including those that it has handed over.",
    )
    request: int = Field(
        default=0,
        ge=0,
        le=MAX_REQUEST,
        description="Number of the last claim whose reply the worker has received. Jobs of that or "
        "an earlier claim that `running` does not list never arrived, and are handed back.",
    )
    lease: Span = Field(
        default=LEASE_MS,
        description="How long its runs stay valid from now, 1s to 24h.",
        examples=["30s"],
    )
    lanes: FailFastList[Name] = Field(
        default=[],
        max_length=MAX_WANTED,
        description="Lanes that it serves, used to explain why a job is not running.",
        examples=[["calls"]],
    )
    name: Text = Field(
        default="", description="Label, such as host and process.", examples=["host7:4711"]
    )
    leaving: bool = Field(
        default=False, description="The worker is stopping, and holds nothing beyond `running`."
    )


MOST_THEN = MAX_BATCH
"""Maximum number of jobs created with an outcome."""
MOST_CLOSED = 16
"""Maximum number of gates closed with an outcome."""


ErrorText = Annotated[str, Field(max_length=1_000_000), AfterValidator(without_nul)]
"""An error or traceback, of which the first 16,000 characters are stored."""


class CloseBody(Body):
    """A gate to close, for example because a provider refuses requests for now."""

    gate: Name = Field(description="Resolved name of the gate.", examples=["rate:twilio"])
    after: Span | None = Field(
        default=None, description="How long it stays closed; alternatively, use `until`."
    )
    until: When | None = Field(
        default=None, description="When it opens again. With neither, it stays closed indefinitely."
    )
    reason: Text = Field(default="", description="Reason, for people.")


class OutcomeBody(RunBody):
    """What all outcomes share."""

    then: FailFastList[JobBody] = Field(
        default_factory=list, max_length=MOST_THEN, description="Jobs to create in the same step."
    )
    close: FailFastList[CloseBody] = Field(
        default_factory=list, max_length=MOST_CLOSED, description="Gates to close in the same step."
    )


class SucceededBody(OutcomeBody):
    """The work has been done."""

    outcome: Literal["succeeded"]
    result: Any = Field(default=None, description="Result to record: any JSON.")


class FailedBody(OutcomeBody):
    """The attempt failed: retried by the job's policy, or dead once all attempts are used."""

    outcome: Literal["failed"]
    error: ErrorText = Field(default="", description="What went wrong.")
    after: Span | None = Field(default=None, description="Replaces the policy's delay.")
    until: When | None = Field(default=None, description="Replaces the policy's delay.")


class DeadBody(OutcomeBody):
    """The job is dead: no further attempts."""

    outcome: Literal["dead"]
    reason: Text = Field(default="failed", description="Why, in a word or a sentence.")
    error: ErrorText = Field(default="", description="What went wrong.")


class SnoozedBody(OutcomeBody):
    """Not now: the job is due again later, and the attempt is not counted."""

    outcome: Literal["snoozed"]
    after: Span | None = Field(
        default=None, description="How long to wait; alternatively, use `until`."
    )
    until: When | None = Field(default=None, description="When the job is due again.")
    reason: Text = Field(default="", description="Why, in a word or a sentence.")

    @model_validator(mode="after")
    def _says_how_long(self) -> SnoozedBody:
        if self.after is None and self.until is None:
            message = "pass either after or until"
            raise ValueError(message)
        return self


class NextStageBody(OutcomeBody):
    """Continues with the next stage and its gates, without using an attempt."""

    outcome: Literal["next_stage"]
    stage: Name = Field(description="Stage of the job's kind to continue with.")
    gates: FailFastList[Name | GateBody] | None = Field(
        default=None,
        max_length=MOST_GATES,
        description="Declared gates of that stage; omit them if the server's App has the kind.",
    )


class ReleasedBody(OutcomeBody):
    """Handed back unused, without using an attempt."""

    outcome: Literal["released"]
    reason: Text = Field(default="handed back", description="Reason, for people.")


class HandedOverBody(OutcomeBody):
    """The job now depends on an outside system: it awaits a signal for the key, or the deadline."""

    outcome: Literal["handed_over"]
    key: Name = Field(
        description="Key under which signals find the run, for example its `ref`.",
        examples=["CA17…"],
    )
    timeout: Span = Field(default=HAND_OVER_MS, description="Time from now to the deadline.")


class KnownAsBody(OutcomeBody):
    """A further key under which signals find the run."""

    outcome: Literal["known_as"]
    key: Name = Field(description="The key, such as the provider's id.")


class ReturnedBody(OutcomeBody):
    """The handler of a run that has handed over has finished; this is only recorded."""

    outcome: Literal["returned"]
    error: ErrorText = Field(default="", description="What went wrong, if the handler failed.")


class GaveBackBody(OutcomeBody):
    """Returns the permits of one gate early."""

    outcome: Literal["gave_back"]
    gate: Name = Field(description="Name of the gate or pool.")


class UnfitBody(OutcomeBody):
    """The cascade's candidate is passed over; the next turn starts."""

    outcome: Literal["unfit"]
    reason: Text = Field(default="", description="Reason, for people.")


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


class SettlementBody(Body):
    """Outcomes of a worker's runs."""

    model_config = examples(
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
    )

    worker: Name = Field(description="Name of the worker, as in its claims.", examples=["worker-1"])
    outcomes: FailFastList[Annotated[AnyOutcome, Field(discriminator="outcome")]] = Field(
        min_length=1,
        max_length=MAX_BATCH,
        description="Outcomes; each is checked and written separately, in this order.",
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
