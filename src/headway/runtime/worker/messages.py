"""What a worker and the processes of its handlers say to each other, over a pipe of their own."""

from __future__ import annotations

from dataclasses import dataclass

from headway.contract.claims import Claimed
from headway.contract.outcomes import Closing, Outcome, Verdict
from headway.core.job import NewJob


@dataclass(frozen=True, kw_only=True, slots=True)
class Order:
    """Do this: the handler by the name under which its module knows it, and the job."""

    module: str
    name: str
    stage: str
    claimed: Claimed
    signal_url: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Ask:
    """The handler writes something and waits for the store's answer."""

    outcome: Outcome


@dataclass(frozen=True, kw_only=True, slots=True)
class Told:
    """The store's answer; or why there is none."""

    verdict: Verdict | None
    error: Exception | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """The handler shows how far it is."""

    data: bytes


@dataclass(frozen=True, kw_only=True, slots=True)
class Done:
    """The handler is through.

    Attributes:
        answer: what it returned, if that says something beside "done".
        result: else what it returned, as JSON.
        raised: a Retry, a Dead or an error of Headway that it raised.
        error: any other error that it raised, for the record.
        then: jobs that follow.
        close: gates to close.
    """

    answer: object = None
    result: bytes | None = None
    raised: Exception | None = None
    error: str = ""
    then: tuple[NewJob, ...] = ()
    close: tuple[Closing, ...] = ()
