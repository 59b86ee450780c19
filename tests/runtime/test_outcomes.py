"""How the end of a handler becomes an outcome: unit tests."""

from __future__ import annotations

from asyncio import CancelledError

import pytest

import headway as hw
from headway.contract.outcomes import Closing, Died, Failed, Returned, Snoozed, Verdict
from headway.core.job import NewJob
from headway.runtime.job import Job, Stop
from headway.runtime.timing import REAL
from headway.runtime.worker.outcomes import (
    Failure,
    Failures,
    outcome_of_error,
    outcome_of_return,
)
from headway.testing.clock import FakeClock
from headway.testing.jobs import JobFactory
from tests.runtime.claimed import NoContext, claimed


@pytest.fixture
def job() -> Job:
    return Job(claimed(1)._replace(run=3, attempt=2, kind="call"), NoContext())


@pytest.fixture
def follow_up() -> NewJob:
    return JobFactory(FakeClock()).make()


CLOSING = Closing(gate="rate:twilio", for_ms=60_000)


def test_what_a_handler_decides_at_its_timeout_counts_and_not_the_timeout(job: Job) -> None:
    job.request_stop("timeout")
    dead = outcome_of_error(job, hw.Dead("bad number"), {})
    assert isinstance(dead, Died)
    assert dead.reason == "bad number"
    retried = outcome_of_error(job, hw.Retry("busy", after="90s"), {})
    assert isinstance(retried, Failed)
    assert (retried.after_ms, retried.error) == (90_000, "busy")
    failed = outcome_of_error(job, ValueError("no such line"), {})
    assert isinstance(failed, Failed)
    assert failed.error.startswith("handler_timeout: ")


def test_snooze_closes_gates_and_creates_no_jobs(job: Job, follow_up: NewJob) -> None:
    job.then(follow_up)
    job.close("rate:twilio", after="60s")
    outcome = outcome_of_return(job, hw.Snooze(after="1s"), {})
    assert isinstance(outcome, Snoozed)
    assert (outcome.then, outcome.close, outcome.after_ms) == ((), (CLOSING,), 1_000)


def test_retry_that_closes_a_gate_needs_a_time() -> None:
    with pytest.raises(hw.InvalidValue, match="'provider' without an end time"):
        hw.Retry(close="provider")
    assert hw.Retry(close="provider", after="1m").close[0].for_ms == 60_000
    assert hw.Retry(close="provider", at="1970-01-01T00:01Z").close[0].until_at == 60_000


def test_retry_closes_the_gates_of_the_handler_and_its_own(job: Job) -> None:
    job.close("rate:twilio", after="60s")
    outcome = outcome_of_error(job, hw.Retry("429", after="1s", close="rate:other"), {})
    assert isinstance(outcome, Failed)
    assert [one.gate for one in outcome.close] == ["rate:twilio", "rate:other"]


def test_dead_job_creates_its_jobs_and_closes_its_gates(job: Job, follow_up: NewJob) -> None:
    job.then(follow_up)
    job.close("rate:twilio", after="60s")
    outcome = outcome_of_error(job, hw.Dead("bad number"), {})
    assert isinstance(outcome, Died)
    assert (outcome.then, outcome.close) == ((follow_up,), (CLOSING,))


def test_result_that_cannot_be_stored_ends_the_job_with_its_jobs_and_gates(
    job: Job, follow_up: NewJob
) -> None:
    job.then(follow_up)
    job.close("rate:twilio", after="60s")
    outcome = outcome_of_return(job, float("nan"), {})
    assert isinstance(outcome, Died)
    assert (outcome.then, outcome.close) == ((follow_up,), (CLOSING,))


@pytest.mark.parametrize("why", ["stop", "cancel"])
def test_handler_that_is_stopped_after_its_hand_over_leaves_its_job_awaiting(
    job: Job, follow_up: NewJob, why: Stop
) -> None:
    job.handed = True
    job.then(follow_up)
    job.request_stop(why)
    outcome = outcome_of_error(job, CancelledError(), {})
    assert isinstance(outcome, Returned)
    assert outcome.then == (follow_up,)
    assert outcome.error.startswith("CancelledError")


async def test_handler_that_is_stopped_during_its_hand_over_awaits_no_signal(job: Job) -> None:
    # A hand-back would be refused if the hand-over was written.
    writing = job.hand_over()
    job.request_stop("stop")
    outcome = outcome_of_error(job, CancelledError(), {})
    writing.close()
    assert isinstance(outcome, Snoozed)
    assert outcome.after_ms == 0


def test_failure_of_a_cancelled_job_is_reported_as_one_without_a_retry(job: Job) -> None:
    job.request_stop("cancel")
    error, reported = ValueError("busy"), list[Failure]()
    outcome = outcome_of_error(job, error, {})
    Failures([reported.append], REAL).report(job, outcome, error)
    assert [(one.becomes, one.retry_in_ms) for one in reported] == [("cancelled", None)]


def test_run_that_is_lost_stays_lost_though_its_worker_stops(job: Job) -> None:
    job.request_stop("lost")
    job.request_stop("stop")
    assert outcome_of_error(job, CancelledError(), {}) is None
    assert outcome_of_return(job, "done", {}) is None


def test_jobs_and_gates_given_while_a_hand_over_is_written_follow_the_next_outcome(
    job: Job, follow_up: NewJob
) -> None:
    job.then(follow_up)
    written = job.handing_over(None, "1m")
    later = follow_up.changed(id="later")
    job.follow((later,), (CLOSING,))
    job.settled_by(written, Verdict.DONE)
    outcome = outcome_of_return(job, None, {})
    assert isinstance(outcome, Returned)
    assert (written.then, outcome.then, outcome.close) == ((follow_up,), (later,), (CLOSING,))
