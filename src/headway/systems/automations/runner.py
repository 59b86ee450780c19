"""Runs a job's session under a lease; settles, counts, logs and reports its end."""

from __future__ import annotations

import json
import logging
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from headway.contract.signals import Decided, Signal, SignalKind, SignalResult
from headway.contract.store import Store
from headway.contract.views import JobQuery
from headway.core.errors import StoreError
from headway.runtime.job import Job
from headway.runtime.timing import Timing, persist
from headway.systems.automations.config import Automation
from headway.systems.automations.folders import Folders, log
from headway.systems.automations.notices import NoticeEvent, Notices
from headway.systems.automations.session import AutomationSession, End, session_id

FORCE_RELEASED = "force-released"
"""Reason of the job of a session whose lock was released by force."""


@dataclass(kw_only=True, slots=True)
class Counts:
    """What this process has done since it started.

    Attributes:
        dispatches: due times at which at least one session was started.
        errors: sessions that did not succeed, or could not be started.
        remade: broken mirrors and worktrees that were recreated.
        last_at: when a session was last started, ms UTC; None before the first.
        last_ms: time from due to started of that session.
        last_due_at: when that session was due, ms UTC.
        last_started: number of sessions started with the same due time.
    """

    dispatches: int = 0
    spawned: int = 0
    errors: int = 0
    remade: int = 0
    last_at: int | None = None
    last_ms: int | None = None
    last_due_at: int | None = None
    last_started: int = 0


@dataclass(kw_only=True)
class SessionRunner:
    """Runs the sessions of this process.

    Attributes:
        live: running sessions, by job id.
        notices: None until the folders exist.
        remade: repositories with a recreated mirror or worktree, until a session succeeds there.
    """

    folders: Folders
    lease_ms: int
    timing: Timing
    counts: Counts = field(default_factory=Counts)
    live: dict[str, AutomationSession] = field(default_factory=dict[str, AutomationSession])
    notices: Notices | None = None
    remade: set[str] = field(default_factory=set[str])

    async def run(
        self, store: Store, job: Job, automation: Automation, lock_timeout_ms: int
    ) -> tuple[AutomationSession, End]:
        """Hand a job over, run its session to the end, and settle the job.

        Raises:
            CancelledError: the worker stopped without waiting for the session.
        """
        until = self._lease_until()
        await job.hand_over(timeout=f"{self.lease_ms}ms")
        session = AutomationSession(
            id=session_id(automation.id, job.id),
            automation=automation,
            run=job.run,
            lock_timeout_ms=lock_timeout_ms,
        )
        self.live[job.id] = session
        self._started(job, session)
        try:
            renew = partial(self._renew, store, job, [until])
            end = await session.run_to_end(
                self.folders, self.timing, until, renew, self.lease_ms / 3000
            )
        except OSError as error:
            end = End(reason="setup", step=f"start: {error.strerror}")
        finally:
            del self.live[job.id]
        if job.stop == "cancel" and end.reason == "stopped":
            end = replace(end, reason="cancelled")
        if end.reason == "lost" and await _is_released(store, job.id):
            end = replace(end, reason="cancelled")
        await self._settle(store, job, session, end)
        return session, end

    def _lease_until(self) -> float:
        # A sixth less than the store's lease, so that all processes are gone before another run.
        return self.timing.monotonic() + self.lease_ms / 1000 * 5 / 6

    async def _renew(
        self, store: Store, job: Job, known: list[float], facts: object
    ) -> float | None:
        """Renew the lease of a session; if this fails, the supervisor ends it when the lease ends.

        Returns:
            The `known` end of the lease, or None if the store has ended it.
        """
        until = self._lease_until()
        signal = Signal(
            key=job.ref,
            event=f"renewed:{until}",
            kind=SignalKind.PROGRESS,
            extend_ms=self.lease_ms,
            body=json.dumps(facts).encode(),
        )
        try:
            reply = await store.signal(signal)
        except StoreError as error:
            log(logging.WARNING, "lease not renewed", {"job": job.id, "error": str(error)})
        else:
            if reply.answer is not SignalResult.APPLIED:
                return None
            known[0] = until
        return known[0]

    async def _settle(self, store: Store, job: Job, session: AutomationSession, end: End) -> None:
        final = Decided.SUCCEEDED if end.succeeded else Decided.RETRY
        if end.reason in {"cancelled", "stopped", "lost"} or end.permanent:
            final = Decided.DEAD
        body = {"session_id": session.id, **{name: getattr(end, name) for name in End.__slots__}}
        signal = Signal(
            key=job.ref,
            event=f"ended:{job.run}",
            decided=final,
            body=json.dumps(body).encode(),
            reason="" if end.succeeded else str(end),
        )
        give_up_at = self.timing.monotonic() + self.lease_ms / 1000
        with suppress(StoreError):
            await persist(
                self.timing,
                "the end of a session",
                lambda: store.signal(signal),
                until=lambda _: self.timing.monotonic() > give_up_at,
            )

    def _started(self, job: Job, session: AutomationSession) -> None:
        counts, due_at = self.counts, job.claimed.due_at
        counts.spawned += 1
        counts.last_at = self.timing.wall_at()
        counts.last_ms = max(counts.last_at - due_at, 0)
        if counts.last_due_at != due_at:
            counts.dispatches += 1
            counts.last_due_at, counts.last_started = due_at, 0
        counts.last_started += 1
        facts = {"session_id": session.id, "repository": session.automation.repository.key}
        log(logging.INFO, "session started", facts)
        self._notify("start", session, f"started in {session.automation.repository.key}")

    def ended(self, session: AutomationSession, end: End) -> None:
        """Count, log and report the end of a session."""
        self.counts.remade += len(session.remade)
        if session.remade:
            self.remade.add(session.automation.repository.key)
        elif end.succeeded:
            self.remade.discard(session.automation.repository.key)
        for what in session.remade:
            log(logging.WARNING, "recreated", {"session_id": session.id, "what": what})
            self._notify("recovery", session, f"the {what} was broken; it was kept and recreated")
        facts = {"session_id": session.id, "end": str(end)}
        if end.succeeded:
            log(logging.INFO, "session succeeded", facts)
            self._notify("complete", session, "succeeded")
            return
        self.counts.errors += 1
        if end.reason == "cancelled":
            # An operator ended it on purpose, so nothing failed.
            log(logging.WARNING, "session cancelled", facts)
            return
        log(logging.ERROR, "session failed", facts)
        if end.reason == "setup":
            until = "; skipped until its entry is edited" if end.permanent else ""
            self._notify("spawn_failure", session, f"{end}{until}")
        else:
            self._notify("error", session, f"failed: {end}")

    def _notify(self, event: NoticeEvent, session: AutomationSession, text: str) -> None:
        if self.notices is not None:
            name = session.automation.id
            self.notices.add(event, text, automation_id=name, session_id=session.id)


async def _is_released(store: Store, job: str) -> bool:
    """Return whether an operator has released a session's lock by force."""
    with suppress(StoreError):
        view = await store.read(JobQuery(id=job))
        return view is not None and view.reason == FORCE_RELEASED
    return False
