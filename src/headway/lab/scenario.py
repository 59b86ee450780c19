"""The tables of a scenario file.

The file is read by `headway.lab.scenario_file`; what its names refer to is checked there.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from headway.core.gates.spec import Hold, Strategy
from headway.core.retry import Jitter
from headway.lab.draws import Drawn
from headway.lab.scenario_values import (
    Distribution,
    Instant,
    Pace,
    Share,
    Span,
    Spread,
    Table,
    When,
)


class SlotsTable(Table):
    """A counting semaphore."""

    kind: Literal["slots"]
    capacity: int
    shared: bool | None = None


class RateTable(Table):
    """At most `limit` starts in any window."""

    kind: Literal["rate"]
    limit: int
    per: Span
    shared: bool | None = None


class HoursTable(Table):
    """Open at these local times; an exception is a date with spans of its own, or "closed"."""

    kind: Literal["hours"]
    open: str
    days: str = "daily"
    tz: str = "UTC"
    exceptions: dict[str, str] = Field(default_factory=dict[str, str])


class PoolTable(Table):
    """One of several Slots."""

    kind: Literal["pool"]
    members: dict[str, int]
    strategy: Strategy = "least_used"
    shared: bool | None = None


GateTable = Annotated[SlotsTable | RateTable | HoursTable | PoolTable, Field(discriminator="kind")]


class UseTable(Table):
    """A gate that a kind needs, where its name alone does not say enough."""

    gate: str
    take: PositiveInt = 1
    hold: Hold = "settled"


def _as_use(value: object) -> object:
    return {"gate": value} if isinstance(value, str) else value


Use = Annotated[UseTable, BeforeValidator(_as_use)]


class RetryTable(Table):
    """How often a failed job is tried again, and when."""

    attempts: PositiveInt = 5
    base: Span = 10_000
    factor: float = 2.0
    cap: Span = 3_600_000
    jitter: Jitter = "equal"


class OutcomeTable(Table):
    """A possible outcome of an attempt.

    Attributes:
        share: how often, relative to the other outcomes.
        then: what the job does about it.
        after: for a retry, instead of the policy's delay; for a snooze, how long.
        length: of the work outside, where it differs from the kind's.
    """

    share: Annotated[float, Field(ge=0)]
    then: Literal["succeed", "retry", "die", "snooze"] = "succeed"
    after: Span | None = None
    length: Spread | None = None


class HandOverTable(Table):
    """The work goes on outside, and a signal reports its end.

    Attributes:
        timeout: how long the signal is awaited.
        lost: the share of signals that never come.
        late: the share that comes later than the work ends.
        duplicate: the share that comes twice.
        on_deadline: what happens to a job whose signal did not come in time.
        ask: whether the provider is asked first.
    """

    length: Spread
    timeout: Span = 1_800_000
    lost: Share = 0.0
    late: Share = 0.0
    late_by: Spread = Distribution(shape="exponential", first_ms=30_000)
    duplicate: Share = 0.0
    on_deadline: Literal["dead", "retry"] = "dead"
    ask: bool = False


class KindTable(Table):
    """A kind of job.

    Attributes:
        service: how long its handler takes, before it hands over or ends.
        outcomes: of an attempt; without any it succeeds.
    """

    lane: str = "main"
    gates: list[Use] = Field(default_factory=list[Use])
    priority: NonNegativeInt = 512
    tenant: str = ""
    subject: str | None = None
    expires: Span | None = None
    start_within: Span = 1_000
    timeout: Span | None = None
    service: Spread = Distribution()
    outcomes: dict[str, OutcomeTable] = Field(default_factory=dict[str, OutcomeTable])
    retry: RetryTable = RetryTable()
    hand_over: HandOverTable | None = None

    @property
    def lengths(self) -> list[Distribution]:
        """All spans that are drawn while a job of this kind runs."""
        found = [self.service]
        if self.hand_over is not None:
            found += [self.hand_over.length, self.hand_over.late_by]
        return found + [one.length for one in self.outcomes.values() if one.length is not None]


class LaneTable(Table):
    """What a lane carries."""

    concurrency: PositiveInt | None = None
    target: Span | None = None
    fair: Literal["tenant"] | None = None
    weights: dict[str, int] = Field(default_factory=dict[str, int])
    max_backlog: PositiveInt | None = None


class PaceTable(Table):
    """From a moment on, so many arrivals in a time."""

    at: When
    rate: Pace


class ArrivalsTable(Table):
    """Where jobs come from: a backlog at the start, a rate, rates that change, or a file.

    Attributes:
        name: for what-ifs; the kind's where it is empty.
        backlog: so many at the start.
        pattern: at random moments, or evenly spaced.
        file: one job for each row of a file of JSON Lines, beside the scenario.
        due: the field with a row's due time, an instant.
        fields: fields of a row that are arguments under their own name.
        present: only rows in which these fields are given and not null.
        absent: only rows in which these fields are missing or null.
        due_after: how long after its arrival a job is due.
        cancel: each is cancelled as soon as it is enqueued.
    """

    kind: str
    name: str = ""
    backlog: NonNegativeInt | None = None
    rate: Pace | None = None
    rates: list[PaceTable] | None = None
    pattern: Literal["random", "even"] = "random"
    file: str | None = None
    due: str | None = None
    fields: list[str] = Field(default_factory=list[str])
    present: list[str] = Field(default_factory=list[str])
    absent: list[str] = Field(default_factory=list[str])
    args: dict[str, Drawn] = Field(default_factory=dict[str, Drawn])
    due_after: Spread = Distribution()
    priority: NonNegativeInt | None = None
    cancel: bool = False

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        sources = {
            "backlog": self.backlog,
            "rate": self.rate,
            "rates": self.rates,
            "file": self.file,
        }
        named = [name for name, value in sources.items() if value is not None]
        if len(named) != 1:
            message = f"one of backlog, rate, rates and file is wanted, not {named or 'none'}"
            raise ValueError(message)
        if self.file is None and (self.due or self.fields or self.present or self.absent):
            message = "due, fields, present and absent are about the rows of a file"
            raise ValueError(message)
        return self


def _as_served(value: object) -> object:
    return dict.fromkeys(cast("list[str]", value), 1) if isinstance(value, list) else value


Served = Annotated[dict[str, PositiveInt], BeforeValidator(_as_served), Field(min_length=1)]


class WorkersTable(Table):
    """Workers that are alike.

    Attributes:
        lanes: that they serve, and the weight of each.
        lease: how long its runs live without a beat.
        starts: when they come; at the start where nothing is said.
        stops: when they go, in good order.
    """

    name: str
    lanes: Served
    count: PositiveInt = 1
    concurrency: PositiveInt = 10
    lease: Span = 30_000
    starts: When | None = None
    stops: When | None = None


class MoveTable(Table):
    """Something that happens at a moment."""

    at: When
    name: str = ""


class PauseMove(MoveTable):
    """An operator closes a gate: `all`, a lane, a tenant, a kind, or any other."""

    do: Literal["pause"]
    gate: str
    until: When | None = None
    reason: str = "as the scenario says"


class ResumeMove(MoveTable):
    """An operator ends a closing."""

    do: Literal["resume"]
    gate: str


class CapacityMove(MoveTable):
    """An operator gives a Slots, a pool's member or an implicit gate another capacity."""

    do: Literal["capacity"]
    gate: str
    to: NonNegativeInt


class LimitMove(MoveTable):
    """An operator gives a Rate another limit."""

    do: Literal["limit"]
    gate: str
    to: NonNegativeInt


class KillMove(MoveTable):
    """Workers die at once, with all they hold; others take their place after a while."""

    do: Literal["kill"]
    worker: str
    count: PositiveInt = 1
    restart_after: Span | None = None


Move = Annotated[
    PauseMove | ResumeMove | CapacityMove | LimitMove | KillMove, Field(discriminator="do")
]


class Scenario(Table):
    """A whole scenario.

    Attributes:
        seed: of all that is random.
        start: the instant at which it begins.
        tz: the zone of its clock, for moments such as "14:30".
        duration: how long jobs arrive; until the last one is settled where nothing is said.
        drain: how long the work goes on after that, at most.
    """

    name: str = "base"
    seed: int = 1
    start: Instant
    tz: str = "UTC"
    duration: Span | None = None
    drain: Span = 0
    gates: dict[str, GateTable] = Field(default_factory=dict[str, GateTable])
    lanes: dict[str, LaneTable] = Field(default_factory=dict[str, LaneTable])
    kinds: dict[str, KindTable]
    arrivals: list[ArrivalsTable]
    workers: list[WorkersTable]
    moves: list[Move] = Field(default_factory=list[Move])
