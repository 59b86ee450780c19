"""What a handler can return or raise for another end than success or failure.

A handler that returns anything else has succeeded, and one that raises anything else has failed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, overload

from headway.contract.outcomes import Closing
from headway.core.duration import Duration, parse_duration
from headway.core.errors import InvalidValue
from headway.core.instant import Instant, parse_instant
from headway.core.naming import check_name
from headway.runtime.kind_options import Gates
from headway.runtime.records import text_of


class Retry(Exception):
    """Raise in a handler: this attempt failed, retry the job.

    Args:
        reason: free text; recorded as the attempt's error.
        after: delay, as "90s" or a timedelta; defaults to the kind's backoff.
        at: time of the next attempt: an aware datetime or ISO 8601 with an offset.
        close: resolved name of a gate to close for all jobs until then.
        stage: stage of the next attempt; defaults to this one.
        gates: gates of that stage, in place of the declared ones; as in `@app.job`.

    Raises:
        InvalidValue: a value is not valid, `close` has no end time, or there are gates without a
            stage.
    """

    # Type checkers find a `close` without a time, which may first be raised during an outage.
    @overload
    def __init__(
        self,
        reason: str = "",
        *,
        after: Duration | None = None,
        at: Instant | None = None,
        stage: str = "",
        gates: Gates | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        reason: str = "",
        *,
        close: str | None,
        after: Duration,
        stage: str = "",
        gates: Gates | None = None,
    ) -> None: ...
    @overload
    def __init__(
        self,
        reason: str = "",
        *,
        close: str | None,
        at: Instant,
        stage: str = "",
        gates: Gates | None = None,
    ) -> None: ...
    def __init__(
        self,
        reason: str = "",
        *,
        after: Duration | None = None,
        at: Instant | None = None,
        close: str | None = None,
        stage: str = "",
        gates: Gates | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage, self.gates = stage, _of_stage("Retry", stage, gates)
        self.after_ms, self.until_at = moment("Retry", after=after, at=at)
        self.close: tuple[Closing, ...] = ()
        if close is not None:
            if self.after_ms is None and self.until_at is None:
                message = f"Retry closes the gate {close!r} without an end time"
                raise InvalidValue(message, hint="also pass `after` or `at`")
            self.close = (
                Closing(
                    gate=check_name("gate", close),
                    for_ms=self.after_ms,
                    until_at=self.until_at,
                    reason=text_of(reason),
                ),
            )


class Dead(Exception):
    """Raise in a handler: make the job dead, without another attempt.

    Args:
        reason: recorded as the job's reason.
    """

    def __init__(self, reason: str = "failed") -> None:
        super().__init__(reason)
        self.reason = reason


class Snooze:
    """Return from a handler: run the same attempt again later.

    Args:
        after: delay, as "5m" or a timedelta.
        until: time to run again: an aware datetime or ISO 8601 with an offset.
        reason: free text; the job's reason until its next run ends.

    Raises:
        InvalidValue: neither or both are passed, or one is not valid.
    """

    __slots__ = ("after_ms", "reason", "until_at")

    def __init__(
        self, *, after: Duration | None = None, until: Instant | None = None, reason: str = ""
    ) -> None:
        self.reason = reason
        self.after_ms, self.until_at = moment("Snooze", after=after, at=until)
        if self.after_ms is None and self.until_at is None:
            message = "Snooze has no duration"
            raise InvalidValue(message, hint='pass `after="5m"` or `until=` an instant')


@dataclass(frozen=True, slots=True)
class Next:
    """Return from a handler: continue with this stage of the kind, and its gates.

    Attributes:
        gates: gates of the stage, in place of the declared ones; as in `@app.job`. The store must
            know them: see `App.declare_gates`.

    Raises:
        InvalidValue: the stage has no valid name.
    """

    stage: str
    gates: Gates | None = None

    def __post_init__(self) -> None:
        """Validate the stage's name, because without one the job would start again at once."""
        check_name("stage", self.stage)


@dataclass(frozen=True, slots=True)
class Unfit:
    """Return from a cascade's handler: this candidate cannot be asked; try the next one."""

    reason: str = ""


class Running:
    """Return from a reconcile handler: the provider is still working on it.

    Args:
        extend: new time until the deadline, as "5m" or a timedelta.
        known_as: the provider's id for it, by which signals find the run from now on.

    Raises:
        InvalidValue: the time is not valid.
    """

    __slots__ = ("extend_ms", "known_as")

    def __init__(self, extend: Duration, known_as: str = "") -> None:
        self.extend_ms = parse_duration(extend)
        self.known_as = known_as


@dataclass(frozen=True, slots=True)
class Ended:
    """Return from a reconcile handler: the provider has finished.

    Attributes:
        final: outcome of the job.
        body: the provider's answer, for the record: any JSON value.
        reason: with dead or retry: the reason.
        after: with retry: the delay, as "5m" or a timedelta; defaults to the kind's backoff.
        stage: with retry: stage of the next attempt; defaults to the same one.
        gates: gates of that stage, as for `Next`.
        known_as: the provider's id for it, by which signals find the run from now on.

    Raises:
        InvalidValue: the delay is not valid, there are gates without a stage, or a stage without
            retry.
    """

    final: Literal["succeeded", "retry", "dead"] = "succeeded"
    body: object = None
    reason: str = ""
    after: Duration | None = None
    stage: str = ""
    gates: Gates | None = None
    known_as: str = ""

    def __post_init__(self) -> None:
        """Validate the combination of fields.

        Raises:
            InvalidValue: see the class.
        """
        _of_stage("Ended", self.stage, self.gates)
        if self.final != "retry" and (self.after is not None or self.stage):
            message = f"Ended({self.final!r}) has a delay or a stage"
            raise InvalidValue(message, hint='only Ended("retry") leads to another attempt')
        _ = self.after_ms

    @property
    def after_ms(self) -> int | None:
        """The delay; None for the kind's backoff."""
        return None if self.after is None else parse_duration(self.after)


@dataclass(frozen=True, slots=True)
class Unknown:
    """Return from a reconcile handler: the provider does not know; the deadline decides."""


def _of_stage(what: str, stage: str, gates: Gates | None) -> Gates | None:
    """Return the gates.

    Raises:
        InvalidValue: there are gates, but no stage.
    """
    if gates is not None and not stage:
        message = f"{what} has gates, but no stage"
        raise InvalidValue(message, hint="name the stage that has these gates")
    return gates


def moment(
    what: str, *, after: Duration | None, at: Instant | None
) -> tuple[int | None, int | None]:
    """Read a delay or an instant.

    Args:
        what: class or method for the error message.

    Returns:
        The delay in ms and the instant in ms UTC; at most one of them is not None.

    Raises:
        InvalidValue: both are passed, or one is not valid.
    """
    if after is not None and at is not None:
        message = f"{what} has both a delay and a time"
        raise InvalidValue(message, hint="pass one of them")
    return (
        None if after is None else parse_duration(after),
        None if at is None else parse_instant(at),
    )
