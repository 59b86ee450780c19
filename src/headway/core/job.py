"""A job as it is asked for, and the policy that its kind gives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha1
from typing import Any

import msgspec
from msgspec.structs import replace

from headway.core.errors import InvalidValue
from headway.core.gates.spec import GateUse
from headway.core.retry import RetryPolicy
from headway.core.state import State

DEFAULT_PRIORITY = 512
MAX_PRIORITY = 2**32 - 1
MAX_ARGS = 1_000_000
"""Bytes of a job's arguments."""
MAX_RESULT = 1_000_000
"""Bytes of a result, a signal's body, or a job's progress."""
MAX_ERROR = 16_000
"""Characters of an error text that are kept."""
MAX_REASON = 512
"""Characters of a reason that are kept."""
MAX_BATCH = 1_000
"""Items of one atomic step."""
MAX_SHARED_GATES = 8
MAX_GATES = 256
"""Gates that one job may ask for: a claim looks at all of them under the store's lock."""
MAX_CANDIDATES = 1_000
DAY_MS = 86_400_000
TRAIL_KEPT_MS = 90 * DAY_MS
"""How long a line of the trail is kept unless a setting says otherwise."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FollowUp:
    """A job that is created in the same step in which its cause becomes final.

    Attributes:
        kind: of the job to create; its arguments are `{"job": id, "state": …, "reason": …}`, or of
            an acceptance `{"job": id, "state": "accepted", "candidate": …, "run": …}`.
        lane: where it waits; None for the lane of its cause.
        states: the final states that create it; of an acceptance they say nothing.
    """

    kind: str
    lane: str | None = None
    states: tuple[State, ...] = (State.DEAD,)


@dataclass(frozen=True, kw_only=True, slots=True)
class JobPolicy:
    """What a kind says of all its jobs; stores keep each distinct one once.

    Attributes:
        retry: when and how often a failed job is tried again.
        timeout_ms: how long a handler may run; None for as long as it likes.
        start_within_ms: a gated job not started by then is handed back.
        on_deadline: what an unanswered hand-over becomes: "dead" or "retry".
        reconcile: the kind of the job that asks the provider, if there is one.
        reconcile_within_ms: how long that job has before the deadline decides.
        on_final: what follows the end.
        keep_ms: how long a final job is kept.
        key_for_ms: how long its key lives after the end.
        cascade: whether the job offers itself to candidates.
        on_accepted: of a cascade, what follows an acceptance, after which the job goes on awaiting
            its end; None where the acceptance is its end.
    """

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    timeout_ms: int | None = None
    start_within_ms: int = 1_000
    on_deadline: str = "dead"
    reconcile: str | None = None
    reconcile_within_ms: int = 300_000
    on_final: FollowUp | None = None
    keep_ms: int = 7 * DAY_MS
    key_for_ms: int = 7 * DAY_MS
    cascade: bool = False
    on_accepted: FollowUp | None = None


DEFAULT_POLICY = JobPolicy()


class NewJob(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One piece of work to be dispatched, as its maker asks for it.

    A msgspec struct, because one is created for each job that is sent. It cannot be part of a
    reference cycle, so the garbage collector need not visit it.

    Attributes:
        id: a UUID in its canonical text, made by the caller's side.
        kind: names the handler.
        lane: where it waits.
        tenant: of the job; empty for none.
        subject: what it is about (a phone, a recipient); None for nothing.
        stage: of a kind with stages; else empty.
        args: a JSON object, UTF-8.
        priority: 0 to 4294967295, smaller first.
        due_at: milliseconds UTC; None for now.
        expires_at: when a job that never started becomes dead; None for never.
        key: makes the enqueue idempotent within the tenant; None for none.
        gates: resolved, in the order declared.
        policy: what its kind says.
        candidates: of a cascade, in the order to try them.
        entry: the timetable entry that made it; None for none.
        fired_at: the entry's moment.
    """

    id: str
    kind: str
    lane: str = "main"
    tenant: str = ""
    subject: str | None = None
    stage: str = ""
    args: bytes = b"{}"
    priority: int = DEFAULT_PRIORITY
    due_at: int | None = None
    expires_at: int | None = None
    key: str | None = None
    gates: tuple[GateUse, ...] = ()
    policy: JobPolicy = DEFAULT_POLICY
    candidates: tuple[str, ...] = ()
    entry: str | None = None
    fired_at: int | None = None

    def changed(self, **fields: Any) -> NewJob:  # noqa: ANN401  (of any field)
        """Return a copy with other values of some fields."""
        return replace(self, **fields)

    def body_hash(self) -> bytes:
        """What two enqueues under one key or id must agree on."""
        return body_hash(self.kind, self.lane, self.tenant, self.subject, self.args)


def body_hash(kind: str, lane: str, tenant: str, subject: str | None, args: bytes) -> bytes:
    """A hash of what two enqueues under one key or id must agree on.

    Returns:
        12 bytes.
    """
    # Each part goes in with its length, so that no two lists of parts run into one text.
    parts = [part.encode() for part in (kind, lane, tenant, subject or "")]
    head = b"".join(len(part).to_bytes(4) + part for part in parts)
    # SHA-1 because a script inside Redis has no other; it distinguishes bodies, and secures
    # nothing.
    return sha1(head + args, usedforsecurity=False).digest()[:12]


def derived_id(*parts: object) -> str:
    """The id of a job that follows from others: the same parts give the same id.

    Args:
        parts: what it follows from, such as a cause's id, its life and a constant word.

    Returns:
        A UUID of version 8, in its canonical text.
    """
    text = "\x1f".join(map(str, parts))
    raw = bytearray(sha1(text.encode(), usedforsecurity=False).digest()[:16])
    raw[6] = raw[6] & 0x0F | 0x80
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def check_made(job: object) -> None:
    """Accept a job that a kind has made.

    Raises:
        InvalidValue: it is something else.
    """
    if not isinstance(job, NewJob):
        message = f"{job!r:.80} is not a job"
        raise InvalidValue(message, hint="pass what kind.make(...) returned")


def fire_id(entry: str, first_seen_at: int, revision: int, fired_at: int) -> str:
    """The id of the job that a timetable entry's fire is, as long as the id is free."""
    return derived_id("fire", entry, first_seen_at, revision, fired_at)


def ids_after(taken: str, n: int) -> list[str]:
    """The ids that a job that follows may have besides, where another has its own.

    Args:
        taken: its derived id, or the last that was tried.

    Returns:
        Those that follow it in its series, in their order.
    """
    found: list[str] = []
    for _ in range(n):
        taken = derived_id("after", taken)
        found.append(taken)
    return found
