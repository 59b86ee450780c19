"""Bodies about jobs: creating them, and operations on them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from headway.contract.operate import Verb
from headway.core.job import DEFAULT_POLICY, MAX_CANDIDATES, MOST_CHAINED
from headway.core.state import State
from headway.server.bodies.base import (
    Body,
    FailFastList,
    JobId,
    Name,
    Positive,
    PriorityField,
    Span,
    TenantName,
    Text,
    When,
    examples,
    one_or_many,
)

MOST_JOBS = 10_000
"""Maximum number of jobs in a request."""
MOST_GATES = 32
"""Maximum number of gates of a job, shared and keyed."""


class GateBody(Body):
    """A declared gate that a job must pass."""

    gate: Name = Field(
        description="Name as declared; a template is filled in from the arguments.",
        examples=["customer:{phone}"],
    )
    name: Name | None = Field(
        default=None, description="Name as resolved by the caller; it must match the template."
    )
    zone: Name | None = Field(
        default=None, description="Time zone of an hours gate, as resolved by the caller."
    )
    amount: Positive = Field(
        default=1, description="Number of permits, or of starts for a rate gate."
    )
    hold: Literal["settled", "run"] = Field(
        default="settled",
        description='"run" returns the permits at a hand-over, "settled" keeps them until the end.',
    )


class RetryBody(Body):
    """How a failed job is retried."""

    attempts: Positive = Field(
        default=DEFAULT_POLICY.retry.attempts,
        description="Maximum number of attempts in one life, including the first.",
    )
    base: Span = Field(
        default=DEFAULT_POLICY.retry.base_ms, description="Delay after the first failure."
    )
    factor: float = Field(
        default=DEFAULT_POLICY.retry.factor,
        ge=1,
        le=1000,
        description="Factor by which each further delay grows.",
    )
    cap: Span = Field(default=DEFAULT_POLICY.retry.cap_ms, description="Maximum delay.")
    jitter: Literal["full", "equal", "none"] = Field(
        default=DEFAULT_POLICY.retry.jitter, description="How much of the delay is random."
    )


class OptionsBody(Body):
    """What is stored with a job about its retries, times and follow-up."""

    retry: RetryBody | None = Field(default=None, description="How the job is retried.")
    timeout: Span | None = Field(default=None, description="How long the handler may run.")
    start_within: Span | None = Field(
        default=None,
        description="A job with gates that has not started within this time is handed back.",
    )
    on_deadline: Literal["dead", "retry"] | None = Field(
        default=None,
        description="What happens to a hand-over that is not answered by its deadline.",
    )
    reconcile: Name | None = Field(
        default=None, description="Kind of the job that asks the provider for the outcome."
    )
    reconcile_within: Span | None = Field(
        default=None, description="How long that job has before the deadline decides."
    )
    on_final: FollowUpBody | None = Field(
        default=None, description="Job to create when this one ends."
    )
    keep: Span | None = Field(default=None, description="How long the job is kept after its end.")
    key_for: Span | None = Field(
        default=None, description="How long its key stays taken after its end."
    )


FollowUpOptions = Annotated[
    OptionsBody | None,
    Field(
        default=None,
        description="Its retries, times and follow-up; by default those of its kind, if the server "
        f"knows it. At most {MOST_CHAINED} follow-ups in a row can have them.",
    ),
]


class FollowUpBody(Body):
    """Job to create in the same step in which this one ends."""

    kind: Name = Field(
        description="Kind of the job to create. Its arguments are job, state and reason."
    )
    lane: Name | None = Field(
        default=None, description="Lane of the job to create; null for the lane of this job."
    )
    states: FailFastList[Literal["succeeded", "dead", "cancelled"]] = Field(
        default=["dead"], min_length=1, max_length=3, description="Final states that create it."
    )
    policy: FollowUpOptions


class AcceptedBody(Body):
    """Job to create in the same step in which a candidate accepts."""

    kind: Name = Field(
        description="Kind of the job to create. Its arguments are job, state, candidate and run."
    )
    lane: Name | None = Field(
        default=None, description="Lane of the job to create; null for the lane of this job."
    )
    policy: FollowUpOptions


class WorkBody(Body):
    """What to do, and where the job waits."""

    kind: Name = Field(description="Kind of the job; it names the handler.", examples=["send_mail"])
    args: dict[str, Any] = Field(
        default={},
        description="Arguments for the handler; at most 1,000,000 bytes as JSON.",
        examples=[{"to": "ada@example.org"}],
    )
    lane: Name | None = Field(
        default=None,
        description="Lane that the job waits in. Defaults to that of its kind, otherwise main.",
    )
    priority: PriorityField | None = Field(
        default=None, description="Priority; smaller numbers start first. 512 is usual."
    )
    tenant: TenantName | None = Field(default=None, description="Customer that the job runs for.")
    subject: Name | None = Field(default=None, description="What the job is about.")
    candidates: FailFastList[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CANDIDATES,
        description="Candidates of a cascade, in the order in which they are asked.",
    )


class SentBody(WorkBody):
    """What to do, and when."""

    due: When | None = Field(default=None, description="When the job is due (default: now).")
    expires: Span | None = Field(
        default=None, description="How long after its due time the job may still start."
    )
    key: Name | None = Field(
        default=None,
        description="Unique within the tenant: however often this is sent, one job is created.",
        examples=["order-17"],
    )
    id: JobId | None = Field(
        default=None,
        description="UUID in lower case, generated by the caller. By default, the server generates "
        "one.",
    )


class PolicyBody(OptionsBody):
    """What is otherwise set by a job's kind; not allowed if the server knows the kind."""

    gates: FailFastList[Name | GateBody] | None = Field(
        default=None,
        max_length=MOST_GATES,
        description="Declared gates that the job must pass, in this order.",
        examples=[["numbers", {"gate": "customer:{phone}", "amount": 1}]],
    )
    stage: Name | None = Field(
        default=None, description="Stage to start with, for a kind with stages."
    )
    cascade: bool | None = Field(
        default=None,
        description="Whether the job is offered to candidates. Defaults to true if it has any.",
    )
    on_accepted: AcceptedBody | None = Field(
        default=None,
        description="Job to create when a candidate accepts; this one then awaits its end.",
    )


class JobBody(PolicyBody, SentBody):
    """A job to create."""


class RecurringBody(PolicyBody, WorkBody):
    """The job that each fire of a timetable entry creates."""


POLICY_FIELDS = tuple(PolicyBody.model_fields)
"""Fields that only jobs without a kind of the server's App may have."""


JobList = Annotated[FailFastList[JobBody], Field(min_length=1, max_length=MOST_JOBS)]
OneOrMany = Annotated[JobBody | JobList, one_or_many(JobBody, JobList, MOST_JOBS)]
"""One job, or a list of up to 10,000."""


MOST_MOVED = 10_000
"""Maximum number of jobs that a request moves."""

FINISHED_SINCE = (
    "Only jobs that ended at this time or later; a duration, such as `1h`, counts back from now."
)
Reason = Annotated[Text, Field(default="", description="Reason, recorded in the trail.")]


class ReasonBody(Body):
    """The reason for a change."""

    model_config = examples({"reason": "the customer asked for it"})

    reason: Reason = ""


class EditBody(ReasonBody):
    """Changes to a job, and why; omitted fields stay unchanged."""

    model_config = examples({"priority": 1, "due": "20m", "reason": "it cannot wait"})

    args: dict[str, Any] | None = Field(
        default=None, description="New arguments; they replace all the old ones."
    )
    priority: PriorityField | None = Field(
        default=None, description="New priority; smaller numbers start first."
    )
    due: When | None = Field(default=None, description="New due time.")

    @property
    def says_nothing(self) -> bool:
        """Whether the body changes nothing."""
        return self.args is None and self.priority is None and self.due is None


class FilterBody(Body):
    """Which jobs; an omitted field matches any job."""

    lane: Name | None = Field(default=None, description="Only jobs in this lane.")
    tenant: TenantName | None = Field(default=None, description="Only jobs of this tenant.")
    kind: Name | None = Field(default=None, description="Only jobs of this kind.")
    subject: Name | None = Field(
        default=None, description="Only jobs with this subject, among the tenant's jobs."
    )
    key: Name | None = Field(
        default=None, description="Only the job with this key, among the tenant's jobs."
    )
    states: FailFastList[Annotated[State, Field(strict=False)]] | None = Field(
        default=None,
        min_length=1,
        max_length=len(State),
        description="Only jobs in these states. Defaults to those that the verb applies to, except "
        "that retry takes cancelled jobs only if asked.",
    )
    finished_since: When | None = Field(default=None, description=FINISHED_SINCE)

    @property
    def names_something(self) -> bool:
        """Whether the filter contains more than states."""
        given = (
            *(self.lane, self.tenant, self.kind, self.subject, self.key),
            self.finished_since,
        )
        return any(one is not None for one in given)


class MovesBody(EditBody):
    """One move on many jobs: those listed, or those that match a filter."""

    model_config = examples(
        {"verb": "retry", "filter": {"lane": "mail"}, "reason": "the mail server is back"},
        {"verb": "cancel", "ids": ["0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11"]},
    )

    verb: Literal["cancel", "retry", "run_now", "edit", "succeed", "kill"] = Field(
        description="Move to apply."
    )
    ids: FailFastList[Annotated[str, Field(max_length=64)]] | None = Field(
        default=None, min_length=1, max_length=MOST_MOVED, description="Ids of the jobs."
    )
    filter: FilterBody | None = Field(
        default=None, description="Filter to use instead of ids. It must contain more than states."
    )
    limit: int = Field(
        default=1_000,
        ge=1,
        le=MOST_MOVED,
        description="With a filter: maximum number of jobs to move.",
    )
    dry: bool = Field(
        default=False, description="With a filter: only count how many jobs match, up to the limit."
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> MovesBody:
        if (self.ids is None) == (self.filter is None):
            message = "pass either ids or a filter"
            raise ValueError(message)
        if self.filter is not None and not self.filter.names_something:
            message = "the filter contains only states"
            raise ValueError(message)
        if self.verb not in {"edit", "retry"} and not self.says_nothing:
            message = f"{self.verb} changes no argument, priority or due time"
            raise ValueError(message)
        if self.verb == "edit" and self.says_nothing:
            message = "edit has nothing to change"
            raise ValueError(message)
        return self

    @property
    def move(self) -> Verb:
        """The verb to apply."""
        return Verb(self.verb)
