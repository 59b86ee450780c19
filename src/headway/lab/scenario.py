"""The tables of a scenario file.

`headway.lab.scenario_file` reads the file, and checks references between its tables.
"""

from __future__ import annotations

from typing import Annotated, Literal, Self, cast

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt, model_validator

from headway.contract.outcomes import HAND_OVER_MS
from headway.core.gates.spec import Hold
from headway.core.job import DEFAULT_POLICY
from headway.core.retry import Jitter
from headway.lab.draws import Drawn
from headway.lab.scenario_gates import ScenarioGate
from headway.lab.scenario_values import (
    Distribution,
    InstantField,
    PaceField,
    Share,
    Span,
    Spread,
    Table,
    When,
)


class UseTable(Table):
    """A gate that a kind needs, with its options; may be written as the gate's name alone."""

    gate: str
    take: PositiveInt = 1
    hold: Hold = "settled"


def _as_use(value: object) -> object:
    return {"gate": value} if isinstance(value, str) else value


Use = Annotated[UseTable, BeforeValidator(_as_use)]


class RetryTable(Table):
    """The retry policy of a kind, as in `Backoff`; durations in ms."""

    attempts: PositiveInt = DEFAULT_POLICY.retry.attempts
    base: Span = DEFAULT_POLICY.retry.base_ms
    factor: float = DEFAULT_POLICY.retry.factor
    cap: Span = DEFAULT_POLICY.retry.cap_ms
    jitter: Jitter = DEFAULT_POLICY.retry.jitter


class OutcomeTable(Table):
    """A possible outcome of an attempt.

    Attributes:
        share: probability relative to the other outcomes.
        then: how the attempt ends.
        after: delay of a retry, in place of the policy's; duration of a snooze.
        length: duration of the work outside, in place of the kind's.
    """

    share: Annotated[float, Field(ge=0, lt=1e15)]
    then: Literal["succeed", "retry", "die", "snooze"] = "succeed"
    after: Span | None = None
    length: Spread | None = None


class HandOverTable(Table):
    """The hand-over of a kind whose work continues outside until a signal reports its end.

    Attributes:
        length: duration of the work outside.
        timeout: how long the signal is awaited.
        lost: share of signals that never arrive.
        late: share of signals that arrive late.
        late_by: delay of late signals after the end of the work.
        duplicate: share of signals that arrive twice.
        on_deadline: outcome of a job whose signal has not arrived in time.
        ask: whether the provider is queried first.
    """

    length: Spread
    timeout: Span = HAND_OVER_MS
    lost: Share = 0.0
    late: Share = 0.0
    late_by: Spread = Distribution(shape="exponential", first_ms=30_000)
    duplicate: Share = 0.0
    on_deadline: Literal["dead", "retry"] = "dead"
    ask: bool = False


class KindTable(Table):
    """A kind of job.

    Attributes:
        service: time in the handler, until it hands over or ends.
        outcomes: possible outcomes of an attempt; without any, it succeeds.
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
        """All durations that are drawn while a job of this kind runs."""
        found = [self.service]
        if self.hand_over is not None:
            found += [self.hand_over.length, self.hand_over.late_by]
        return found + [one.length for one in self.outcomes.values() if one.length is not None]


class ScenarioLane(Table):
    """The options of a lane."""

    concurrency: PositiveInt | None = None
    target: Span | None = None
    fair: Literal["tenant"] | None = None
    weights: dict[str, int] = Field(default_factory=dict[str, int])
    max_backlog: PositiveInt | None = None


class PaceTable(Table):
    """The rate of arrivals from some time on."""

    at: When
    rate: PaceField


class ArrivalsTable(Table):
    """A source of jobs: a backlog at the start, a rate, rates that change, or a file.

    Attributes:
        name: name by which what-ifs address it.
        backlog: number of jobs at the start.
        pattern: whether jobs arrive at random times or evenly spaced.
        file: JSON Lines file beside the scenario, with a job in each row.
        due: field of a row with the due time, an instant.
        fields: fields of a row that are arguments under their own name.
        present: fields that must be present and not null; other rows are skipped.
        absent: fields that must be missing or null; other rows are skipped.
        due_after: time from the arrival (or the row's due time) until the job is due.
        cancel: whether each job is cancelled as soon as it is enqueued.
    """

    kind: str
    name: str = ""
    backlog: NonNegativeInt | None = None
    rate: PaceField | None = None
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
            message = (
                "one of backlog, rate, rates and file is required, "
                f"not {' and '.join(named) or 'none'}"
            )
            raise ValueError(message)
        if self.file is None and (self.due or self.fields or self.present or self.absent):
            message = "due, fields, present and absent apply only to the rows of a file"
            raise ValueError(message)
        return self


def _as_served(value: object) -> object:
    names = cast("list[object]", value)
    if isinstance(value, list) and all(isinstance(one, str) for one in names):
        return dict.fromkeys(names, 1)
    return names


Served = Annotated[dict[str, PositiveInt], BeforeValidator(_as_served), Field(min_length=1)]


class WorkersTable(Table):
    """A group of identical workers.

    Attributes:
        lanes: lanes that they serve, with weights.
        count: number of processes, each with `concurrency` handlers.
        lease: how long their runs stay valid without a heartbeat.
        starts: when they start; by default at the scenario's start.
        stops: when they stop gracefully; by default not before the end.
    """

    name: str
    lanes: Served
    count: PositiveInt = 1
    concurrency: PositiveInt = 10
    lease: Span = 30_000
    starts: When | None = None
    stops: When | None = None


class MoveTable(Table):
    """An event at a given time."""

    at: When
    name: str = ""


class PauseMove(MoveTable):
    """An operator closes a gate: `all`, a lane, a tenant, a kind, or any other."""

    do: Literal["pause"]
    gate: str
    until: When | None = None
    reason: str = "part of the scenario"


class ResumeMove(MoveTable):
    """An operator opens a closed gate."""

    do: Literal["resume"]
    gate: str


class CapacityMove(MoveTable):
    """An operator changes the capacity of a Slots, a pool's member or an implicit gate."""

    do: Literal["capacity"]
    gate: str
    to: NonNegativeInt


class LimitMove(MoveTable):
    """An operator changes the limit of a Rate."""

    do: Literal["limit"]
    gate: str
    to: NonNegativeInt


class KillMove(MoveTable):
    """Workers are killed with all they hold; as many start again after `restart_after`."""

    do: Literal["kill"]
    worker: str
    count: PositiveInt = 1
    restart_after: Span | None = None


ScenarioMove = Annotated[
    PauseMove | ResumeMove | CapacityMove | LimitMove | KillMove, Field(discriminator="do")
]


class Scenario(Table):
    """A whole scenario.

    Attributes:
        seed: seed of all random values.
        start: when it starts.
        tz: time zone of times such as "14:30".
        duration: how long jobs arrive; by default until the last one is final, at most a week.
        drain: maximum time after that to finish the work.
    """

    name: str = "base"
    seed: int = 1
    start: InstantField
    tz: str = "UTC"
    duration: Span | None = None
    drain: Span = 0
    gates: dict[str, ScenarioGate] = Field(default_factory=dict[str, ScenarioGate])
    lanes: dict[str, ScenarioLane] = Field(default_factory=dict[str, ScenarioLane])
    kinds: dict[str, KindTable]
    arrivals: list[ArrivalsTable]
    workers: list[WorkersTable]
    moves: list[ScenarioMove] = Field(default_factory=list[ScenarioMove])
