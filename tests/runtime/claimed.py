"""Started jobs for tests of parts of a worker, without a store."""

from __future__ import annotations

from headway.contract.claims import Claimed
from headway.contract.outcomes import Outcome, Verdict
from headway.core.job import DEFAULT_POLICY


def claimed(number: int, *, gated: bool = False) -> Claimed:
    """Return a job that a claim started."""
    return Claimed(
        id=f"job {number}",
        run=number,
        attempt=1,
        kind="noop",
        stage="",
        lane="main",
        tenant="",
        subject=None,
        args=b"{}",
        priority=512,
        due_at=0,
        policy=DEFAULT_POLICY,
        gated=gated,
        members={},
        candidate="",
    )


class NoContext:
    """For jobs that write nothing while their handler runs."""

    def signal_url(self, ref: str) -> str | None:
        raise AssertionError(ref)

    async def write(self, outcome: Outcome) -> Verdict:
        raise AssertionError(outcome)

    def write_from_thread(self, outcome: Outcome) -> Verdict:
        raise AssertionError(outcome)

    def note_progress(self, job: str, run: int, data: bytes) -> None:
        raise AssertionError(job, run, data)
