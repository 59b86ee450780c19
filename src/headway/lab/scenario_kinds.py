"""The tables of a scenario file for kinds of jobs and the outcomes of their attempts."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, NonNegativeInt, PositiveInt

from headway.core.gates.spec import Hold
from headway.core.retry import Jitter
from headway.lab.distribution import Distribution, Spread
from headway.lab.scenario_values import Share, Span, Table


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
