"""Outcomes as a request says them; each field is one of the outcome's record."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, model_validator

from headway.core.job import MAX_BATCH
from headway.server.bodies.body import Body, Several
from headway.server.bodies.job import MOST_GATES, GateBody, JobBody
from headway.server.bodies.lease import RunBody
from headway.server.bodies.words import Name, Span, Text, When

MOST_THEN = MAX_BATCH
"""Jobs that follow from one outcome."""
MOST_CLOSED = 16
"""Gates that one outcome closes."""
HAND_OVER_MS = 1_800_000
"""How long a hand-over may go unanswered, if nothing is said."""


def _readable(value: str) -> str:
    # PostgreSQL keeps no NUL, and an error is not worth a refusal.
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}")


ErrorText = Annotated[str, Field(max_length=1_000_000), AfterValidator(_readable)]
"""An error, a traceback: the first 16,000 characters are kept."""


class CloseBody(Body):
    """A gate to be closed, because whoever stands behind it said "not now"."""

    gate: Name = Field(description="Its resolved name.", examples=["rate:twilio"])
    after: Span | None = Field(default=None, description="For how long; else see `until`.")
    until: When | None = Field(default=None, description="Until when; neither: for good.")
    reason: Text = Field(default="", description="For people.")


class OutcomeBody(RunBody):
    """What all outcomes share."""

    then: Several[JobBody] = Field(
        default_factory=list, max_length=MOST_THEN, description="Jobs to create in the same step."
    )
    close: Several[CloseBody] = Field(
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
    gates: Several[Name | GateBody] | None = Field(
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
"""One of these, told apart by `outcome`."""


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
    outcomes: Several[Annotated[AnyOutcome, Field(discriminator="outcome")]] = Field(
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
