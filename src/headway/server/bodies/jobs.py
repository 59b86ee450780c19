"""Bodies about jobs: creating them, and operations on them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from headway.contract.operate import Verb
from headway.core.job import MAX_CANDIDATES
from headway.core.state import State
from headway.server.bodies.base import (
    Body,
    FailFastList,
    JobId,
    Name,
    Positive,
    Priority,
    Span,
    TenantName,
    Text,
    When,
    one_or_many,
)

MOST_JOBS = 10_000
"""Jobs of one request."""
MOST_GATES = 32
"""Gates of one job, shared and keyed."""


class GateBody(Body):
    """A declared gate that a job must pass."""

    gate: Name = Field(
        description="As it is declared; a template is filled in with the arguments.",
        examples=["customer:{phone}"],
    )
    name: Name | None = Field(
        default=None, description="Resolved by you; it must fit the template."
    )
    zone: Name | None = Field(default=None, description="Of hours, resolved by you.")
    amount: Positive = Field(default=1, description="Permits, or starts of a rate.")
    hold: Literal["settled", "run"] = Field(
        default="settled",
        description='"run" gives the permits back at a hand-over, "settled" keeps them.',
    )


class RetryBody(Body):
    """How a failed job is tried again."""

    attempts: Positive = Field(default=5, description="Of one life, the first one included.")
    base: Span = Field(default=10_000, description="The delay after the first failure.")
    factor: float = Field(default=2.0, ge=1, le=1000, description="By how much it grows.")
    cap: Span = Field(default=3_600_000, description="No delay is longer.")
    jitter: Literal["full", "equal", "none"] = Field(
        default="equal", description="How much of a delay is drawn."
    )


class FollowUpBody(Body):
    """What follows a job's end, in the same step."""

    kind: Name = Field(description="Its arguments are job, state and reason.")
    lane: Name | None = Field(default=None, description="Null for the lane of its cause.")
    states: FailFastList[Literal["succeeded", "dead", "cancelled"]] = Field(
        default=["dead"], min_length=1, max_length=3, description="The ends that it follows."
    )


class AcceptedBody(Body):
    """What follows an acceptance, in the same step."""

    kind: Name = Field(description="Its arguments are job, state, candidate and run.")
    lane: Name | None = Field(default=None, description="Null for the lane of its cause.")


class WorkBody(Body):
    """What is to be done, and where it waits."""

    kind: Name = Field(description="Names the handler.", examples=["send_mail"])
    args: dict[str, Any] = Field(
        default={},
        description="Of the handler; at most 1,000,000 bytes as JSON.",
        examples=[{"to": "ada@example.org"}],
    )
    lane: Name | None = Field(default=None, description="Where it waits; main if nothing says.")
    priority: Priority | None = Field(default=None, description="Smaller first; 512 is usual.")
    tenant: TenantName | None = Field(default=None, description="The customer it runs for.")
    subject: Name | None = Field(default=None, description="What it is about.")
    candidates: FailFastList[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CANDIDATES,
        description="Of a cascade, in the order to be asked.",
    )


class SentBody(WorkBody):
    """What is to be done, and when."""

    due: When | None = Field(default=None, description="When it is due; now if not given.")
    expires: Span | None = Field(
        default=None, description="How long after it is due it may still start."
    )
    key: Name | None = Field(
        default=None,
        description="Within its tenant, one job has it, however often this is sent.",
        examples=["order-17"],
    )
    id: JobId | None = Field(
        default=None, description="A UUID in lower case, made by you; a new one if not given."
    )


class PolicyBody(Body):
    """What is otherwise said by a job's kind; a job of a kind that the server knows has none."""

    gates: FailFastList[Name | GateBody] | None = Field(
        default=None,
        max_length=MOST_GATES,
        description="Declared gates that it must pass, in this order.",
        examples=[["numbers", {"gate": "customer:{phone}", "amount": 1}]],
    )
    stage: Name | None = Field(default=None, description="Of a kind with stages.")
    retry: RetryBody | None = Field(default=None, description="How it is tried again.")
    timeout: Span | None = Field(default=None, description="How long its handler may run.")
    start_within: Span | None = Field(
        default=None, description="With gates, and not started by then, it is handed back."
    )
    on_deadline: Literal["dead", "retry"] | None = Field(
        default=None, description="What an unanswered hand-over becomes."
    )
    reconcile: Name | None = Field(
        default=None, description="The kind of the job that asks the provider."
    )
    reconcile_within: Span | None = Field(
        default=None, description="How long that has before the deadline decides."
    )
    on_final: FollowUpBody | None = Field(default=None, description="What follows its end.")
    keep: Span | None = Field(default=None, description="How long it is kept after its end.")
    key_for: Span | None = Field(default=None, description="How long its key lives after its end.")
    cascade: bool | None = Field(
        default=None, description="Whether it is offered to candidates; true where it has any."
    )
    on_accepted: AcceptedBody | None = Field(
        default=None,
        description="With candidates: what follows an acceptance, after which it awaits its end.",
    )


class JobBody(PolicyBody, SentBody):
    """A job to be made."""


class RecurringBody(PolicyBody, WorkBody):
    """What each fire of a timetable entry is a job of."""


POLICY_FIELDS = tuple(PolicyBody.model_fields)
"""What only a plain job says."""


JobList = Annotated[FailFastList[JobBody], Field(min_length=1, max_length=MOST_JOBS)]
OneOrMany = Annotated[JobBody | JobList, one_or_many(JobBody, JobList, MOST_JOBS)]
"""One job, or a list of up to 10,000."""


MOST_MOVED = 10_000
"""Jobs of one request."""

Reason = Annotated[Text, Field(default="", description="Why; stands on the trail.")]


class ReasonBody(Body):
    """Why it is done."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "the customer asked for it"}]}
    )

    reason: Reason = ""


class EditBody(ReasonBody):
    """What to change about a job, and why; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"priority": 1, "due": "20m", "reason": "it cannot wait"}]}
    )

    args: dict[str, Any] | None = Field(
        default=None, description="New arguments, in place of all the old."
    )
    priority: Priority | None = Field(default=None, description="Smaller first.")
    due: When | None = Field(default=None, description="When it is due.")

    @property
    def says_nothing(self) -> bool:
        """Whether nothing is to be changed."""
        return self.args is None and self.priority is None and self.due is None


class FilterBody(Body):
    """Which jobs; what is left out stands for any."""

    lane: Name | None = Field(default=None, description="Only of this lane.")
    tenant: TenantName | None = Field(default=None, description="Only of this tenant.")
    kind: Name | None = Field(default=None, description="Only of this kind.")
    subject: Name | None = Field(
        default=None, description="Only about this, among the tenant's jobs."
    )
    key: Name | None = Field(
        default=None, description="Only the job that has this key, among the tenant's."
    )
    states: FailFastList[Annotated[State, Field(strict=False)]] | None = Field(
        default=None,
        min_length=1,
        max_length=len(State),
        description="Only in these; else those that the verb applies to. Of cancelled jobs, retry "
        "takes only those that are asked for.",
    )

    @property
    def names_something(self) -> bool:
        """Whether anything but a state is asked for."""
        given = (self.lane, self.tenant, self.kind, self.subject, self.key)
        return any(one is not None for one in given)


class MovesBody(EditBody):
    """One move on many jobs: those named, or those that fit a filter."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"verb": "retry", "filter": {"lane": "mail"}, "reason": "the mail server is back"},
                {"verb": "cancel", "ids": ["0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11"]},
            ]
        }
    )

    verb: Literal["cancel", "retry", "run_now", "edit", "succeed", "kill"] = Field(
        description="What to do."
    )
    ids: FailFastList[Annotated[str, Field(max_length=64)]] | None = Field(
        default=None, min_length=1, max_length=MOST_MOVED, description="The jobs."
    )
    filter: FilterBody | None = Field(
        default=None, description="Instead of ids; it must name more than states."
    )
    limit: int = Field(
        default=1_000, ge=1, le=MOST_MOVED, description="By filter: at most so many jobs."
    )
    dry: bool = Field(
        default=False, description="By filter: only count how many fit, up to the limit."
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> MovesBody:
        if (self.ids is None) == (self.filter is None):
            message = "give either ids or a filter"
            raise ValueError(message)
        if self.filter is not None and not self.filter.names_something:
            message = "the filter names only states"
            raise ValueError(message)
        if self.verb not in {"edit", "retry"} and not self.says_nothing:
            message = f"{self.verb} changes no argument, priority or due time"
            raise ValueError(message)
        if self.verb == "edit" and self.says_nothing:
            message = "edit is given nothing to change"
            raise ValueError(message)
        return self

    @property
    def move(self) -> Verb:
        """What to do."""
        return Verb(self.verb)
