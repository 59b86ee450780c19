"""Bodies of definitions: gates, closings, permits, lanes and timetable entries."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from pydantic import Field, model_validator

from headway.contract.definitions import EntrySpec, LaneSpec, SetGate
from headway.core.fairness import MAX_WEIGHT
from headway.core.gates.opening import Hours
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from headway.core.instant import Moment
from headway.core.job import NewJob
from headway.core.timetable.fires import MisfirePolicy
from headway.core.timetable.schedule import Schedule, parse_schedule
from headway.runtime.declaration import LaneOptions, read_lane
from headway.server.bodies.base import (
    Body,
    Count,
    Name,
    Positive,
    Span,
    TenantName,
    Text,
    When,
    examples,
    max_fields,
)
from headway.server.bodies.jobs import JobBody, ReasonBody, RecurringBody

MOST_MEMBERS = 1_000
MOST_EXCEPTIONS = 1_000

Members = Annotated[
    dict[Name, Count], max_fields(MOST_MEMBERS), Field(min_length=1, max_length=MOST_MEMBERS)
]
_Shared = Annotated[
    bool | None,
    Field(
        default=None,
        description="Set to true if an argument in the name has few values. By default, the name "
        "decides.",
    ),
]


class SlotsBody(Body):
    """Limits the number of permits held at once."""

    kind: Literal["slots"]
    capacity: Count = Field(description="Number of permits.")
    shared: _Shared = None

    def spec(self, name: str) -> GateSpec:
        """Return the spec of the gate with this name."""
        return Slots(name, self.capacity, shared=self.shared)


class RateBody(Body):
    """Limits the number of starts in any window."""

    kind: Literal["rate"]
    limit: Count = Field(description="Maximum number of starts in the window.")
    per: Span = Field(description="Length of the window; at least 1 ms.", examples=["1h"])
    shared: _Shared = None

    def spec(self, name: str) -> GateSpec:
        """Return the spec of the gate with this name."""
        return Rate(name, self.limit, f"{self.per}ms", shared=self.shared)


class PoolBody(Body):
    """Picks one of several members with slots of their own; the handler gets the chosen one."""

    kind: Literal["pool"]
    members: Members = Field(
        description="Number of permits of each member, in order.", examples=[{"+15550001": 4}]
    )
    strategy: Literal["least_used", "round_robin", "first_free"] = "least_used"
    shared: _Shared = None

    def spec(self, name: str) -> GateSpec:
        """Return the spec of the gate with this name."""
        return Pool(name, self.members, strategy=self.strategy, shared=self.shared)


class HoursBody(Body):
    """Opens the gate only at certain local times."""

    kind: Literal["hours"]
    hours: Text = Field(description="Time ranges, separated by commas.", examples=["09:00-18:00"])
    days: Text = Field(default="daily", examples=["mon-fri"])
    tz: Text = Field(default="UTC", description="IANA time zone, or a template such as {tz}.")
    exceptions: Annotated[dict[str, Text | None], max_fields(MOST_EXCEPTIONS)] = Field(
        default={},
        max_length=MOST_EXCEPTIONS,
        description="Dates with their own time ranges; null means closed all day.",
        examples=[{"2026-12-25": None}],
    )

    def spec(self, name: str) -> GateSpec:
        """Return the spec of the gate with this name."""
        return Hours(name, self.hours, days=self.days, tz=self.tz, exceptions=self.exceptions)


AnyGate = Annotated[SlotsBody | RateBody | PoolBody | HoursBody, Field(discriminator="kind")]


class GateNumbersBody(ReasonBody):
    """New numbers for a gate; omitted fields stay unchanged."""

    model_config = examples({"capacity": 12, "reason": "four more lines"})

    capacity: Count | None = Field(
        default=None, description="New capacity of a slots gate, a pool member or an implicit gate."
    )
    limit: Count | None = Field(default=None, description="New limit of a rate gate.")
    per: Span | None = Field(default=None, description="New window of a rate gate; at least 1 ms.")
    members: Members | None = Field(
        default=None, description="New members of a pool; replaces all of them."
    )

    def change(self, name: str) -> SetGate:
        """Return the change of the gate with this name."""
        return SetGate(
            name=name,
            capacity=self.capacity,
            limit=self.limit,
            per_ms=self.per,
            members=None if self.members is None else tuple(self.members.items()),
        )


class UntilBody(ReasonBody):
    """How long a gate stays closed, and why."""

    model_config = examples({"until": "20m", "reason": "a look first"})

    after: Span | None = Field(
        default=None, description="How long until the gate opens again by itself."
    )
    until: When | None = Field(default=None, description="When the gate opens again by itself.")

    @model_validator(mode="after")
    def _one_at_most(self) -> UntilBody:
        if self.after is not None and self.until is not None:
            message = "pass either after or until, not both"
            raise ValueError(message)
        return self

    def resolved(self, now: int) -> int | None:
        """Return the time in ms UTC; None for indefinitely."""
        if self.after is not None:
            return now + self.after
        return None if self.until is None else self.until.ahead("body.until", now)


class ClosureBody(UntilBody):
    """A gate to close, indefinitely or until a given time."""

    model_config = examples(
        {"gate": "all", "reason": "stop everything"}, {"gate": "tenant:acme", "after": "1h"}
    )

    gate: Name = Field(
        description="Any gate: a declared one, an instance, pool/member, all, lane:…, tenant:… or "
        "kind:….",
        examples=["all"],
    )


class PermitBody(ReasonBody):
    """A permit to take from its holder by force."""

    model_config = examples(
        {
            "gate": "numbers",
            "job": "0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11",
            "reason": "its call is over",
        }
    )

    gate: Name = Field(description="The gate that the permit belongs to.")
    job: str = Field(max_length=64, description="Job that holds the permit.")


MOST_WEIGHTS = 1_000


class LaneBody(Body):
    """All settings of a lane; omitted fields get the engine's defaults."""

    model_config = examples({"concurrency": 3, "target": "5s", "max_backlog": 100000})

    concurrency: Count | None = Field(
        default=None, description="Maximum number of the lane's jobs in handlers at once."
    )
    lease: Span | None = Field(
        default=None,
        description="How long runs of workers in Python, which start from then on, stay valid "
        "without a heartbeat; claims over HTTP have their own `lease`.",
    )
    target: Span | None = Field(default=None, description="Latency target, from due to start.")
    fair: Literal["tenant"] | None = Field(
        default=None, description="`tenant` shares starts between tenants."
    )
    weights: Annotated[
        dict[TenantName, Annotated[int, Field(ge=1, le=MAX_WEIGHT)]], max_fields(MOST_WEIGHTS)
    ] = Field(
        default={},
        max_length=MOST_WEIGHTS,
        description="Weights of tenants in a fair lane (default: 1).",
    )
    max_backlog: Count | None = Field(
        default=None, description="Above this number of unfinished jobs, new ones are refused."
    )

    def spec(self, name: str) -> LaneSpec:
        """Return the spec of the lane with this name."""
        wanted = {
            "concurrency": self.concurrency,
            "lease": None if self.lease is None else f"{self.lease}ms",
            "target": None if self.target is None else f"{self.target}ms",
            "fair": self.fair,
            "weights": self.weights,
            "max_backlog": self.max_backlog,
        }
        options = {what: value for what, value in wanted.items() if value is not None}
        return read_lane(name, cast("LaneOptions", options))


class EntryBody(Body):
    """A schedule, and the job to create each time."""

    model_config = examples(
        {
            "schedule": "cron: 0 3 * * *",
            "tz": "Europe/Berlin",
            "job": {"kind": "noop", "lane": "nightly"},
        }
    )

    schedule: Text = Field(
        description='"cron: 0 3 * * *", "every 30m" or "at 09:00 mon-fri".',
        examples=["cron: 0 3 * * *"],
    )
    tz: Text = Field(
        default="UTC", description="IANA time zone of a cron expression or a time of day."
    )
    anchor: When | None = Field(default=None, description="First fire of an interval.")
    job: RecurringBody = Field(
        description="Job that each fire creates.", examples=[{"kind": "noop", "lane": "nightly"}]
    )
    misfire: Literal["skip", "once", "all"] = Field(
        default="once", description="What happens to fires missed during an outage."
    )
    misfire_cap: Positive = Field(
        default=100, description='Maximum number of missed fires that "all" makes up for.'
    )
    overlap: Literal["skip", "one", "all"] = Field(
        default="skip",
        description="What happens to a fire while the job of an earlier one is still waiting or "
        "running.",
    )
    enabled: bool | None = Field(
        default=None,
        description="Whether the entry fires. A new entry does by default; an existing one stays "
        "unchanged.",
    )

    def body_of(self, id: str) -> JobBody:
        """Return the job of each fire, as the body of a job to send."""
        # Due at 0, so that its expiry counts from the time of each fire.
        fields: Any = {**dict(self.job), "id": id, "due": Moment(at=0)}
        return JobBody.model_construct(**fields)

    def read_schedule(self, now: int) -> Schedule:
        """Parse the schedule; its anchor may be relative to `now`."""
        anchor_at = 0 if self.anchor is None else self.anchor.resolved(now)
        return parse_schedule(self.schedule, tz=self.tz, anchor_at=anchor_at)

    def spec(self, name: str, schedule: Schedule, job: NewJob) -> EntrySpec:
        """Return the spec of the entry with this name."""
        return EntrySpec(
            name=name,
            schedule=schedule,
            job=job.changed(due_at=None),
            misfire=MisfirePolicy(self.misfire),
            misfire_cap=self.misfire_cap,
            overlap=self.overlap,
            enabled=self.enabled is not False,
        )
