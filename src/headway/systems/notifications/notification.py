"""A notification as the API shows it: its status and its history, derived from its job.

Also the names of channels, lanes, kinds and gates that the parts of this system share.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec

from headway.contract.views import JobView, NoteView, RunView
from headway.core.state import State
from headway.systems.jobs import can_read

NAME = "notifications"
"""Name of the system, of its settings table and of its context."""

NOTIFICATION = "notification"
"""Kind of the jobs."""

HISTORY_LANE = "notify.history"
"""Lane of the jobs that write the history."""


class Channel(StrEnum):
    """A way to reach a recipient."""

    PUSH = "push"
    SMS = "sms"
    EMAIL = "email"
    WEBHOOK = "webhook"
    APPRISE = "apprise"

    @property
    def lane(self) -> str:
        """Lane of notifications whose first channel is this one."""
        return f"notify.{self}"

    @property
    def slots(self) -> str:
        """Gate that limits concurrent sends; a provider's 429 closes it."""
        return f"notify.{self}.sends"

    @property
    def rate(self) -> str:
        """Gate of the provider's rate."""
        return f"notify.{self}.rate"


class Priority(StrEnum):
    """The order of sending when not everything can be sent at once."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Status(StrEnum):
    """The status of a notification."""

    QUEUED = "QUEUED"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"
    CANCELLED = "CANCELLED"


class Tallied(StrEnum):
    """The events of the tally, with their labels."""

    OUTCOME = "outcome"
    """A send; label: channel, `:`, and a status or another outcome below."""
    LATE = "late"
    """A started send; label: channel, `:`, and the bucket of the histogram."""
    LATE_MS = "late_ms"
    """Milliseconds of lateness; label: channel."""
    HISTORY = "history"
    """A row of the history; label: an outcome below."""


BUCKETS_MS = (10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Bounds of the histogram of lateness; another bucket has no bound."""
LOST, LIMITED, UNAVAILABLE = "answer_lost", "limited", "unavailable"
"""Outcomes that are not a status."""
WRITTEN, FORGOTTEN, OFF = "written", "forgotten", "off"
"""Outcomes of a row of the history. Forgotten: the store had already deleted the notification.
Off: this process has no history, unlike the one that created the notification."""
ANSWER_LOST = "sent, answer lost"
"""Reason of a SENT notification whose provider never answered."""


def known_as(provider_id: str) -> str:
    """Return the key under which a delivery event finds its notification."""
    return f"notify:{provider_id}"


NOTED = {f"note {one}": one for one in (Status.SENT, Status.DELIVERED, Status.FAILED)}
"""Statuses that notes give an ended notification: the last one counts, but none after DELIVERED."""

BACK = frozenset({"snoozed", "failed"})
"""Outcomes of runs that sent nothing, after which a notification is tried again."""


class Args(msgspec.Struct, frozen=True):
    """The arguments of a notification's job, in the order of its handler's parameters."""

    channels: list[Channel]
    category: str
    level: Priority
    template: str | None = None
    data: dict[str, Any] = {}
    title: str = ""
    text: str = ""
    html: str | None = None
    expires_at: int | None = None

    def after(self, channel: str) -> Channel | None:
        """Return the channel to try after this one; None if it is the last, or unknown."""
        pairs = zip(self.channels, self.channels[1:], strict=False)
        return next((following for one, following in pairs if one == channel), None)


class SendRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of a send: the job's progress while it awaits, and its result at the end."""

    status: Status
    channel: str = ""
    reason: str = ""


LANES = frozenset(one.lane for one in Channel)
"""Lanes of notifications."""


def is_notification(job: JobView) -> bool:
    """Return whether a job is a notification of this system.

    Callers of other lanes can create jobs of any kind there, with any contents.
    """
    return job.kind == NOTIFICATION and job.lane in LANES and can_read(read_args, job)


read_args = msgspec.json.Decoder(Args).decode
"""Decode the arguments of a job."""
_record_decoder = msgspec.json.Decoder(SendRecord)
body_of: Callable[[SendRecord], bytes] = msgspec.json.Encoder().encode
"""Encode the record of a send as the body of a signal."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Event:
    """One line of a notification's history.

    Attributes:
        status: status that it changed to.
        at: time, ms UTC.
        channel: channel; empty if none is involved.
        reason: reason; may be empty.
    """

    status: Status
    at: int
    channel: str
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Notification:
    """A notification.

    Attributes:
        id: id of the notification.
        recipient: id of the recipient.
        channels: channels, in the order to try.
        channel: channel that it was sent by, or that is tried next.
        status: current status.
        reason: why it failed, was skipped or is postponed, or what is unknown; may be empty.
        category: category, such as otp.
        priority: priority, as sent.
        template: id of the template; null for literal text.
        created_at: when it was created, ms UTC.
        due_at: when it was first due, ms UTC.
        sent_at: when it was handed to its provider, ms UTC; null if it was not.
        late_ms: time from due to handed over; null if it was not handed over.
        attempts: number of sends started.
        events: history, oldest first; empty in listings.
    """

    id: str
    recipient: str
    channels: tuple[str, ...]
    channel: str
    status: Status
    reason: str
    category: str
    priority: Priority
    template: str | None
    created_at: int
    due_at: int
    sent_at: int | None
    late_ms: int | None
    attempts: int
    events: tuple[Event, ...]


def record_of(job: JobView) -> SendRecord | None:
    """Return the record of a notification's send; None if there is none."""
    found = job.result if job.result is not None else job.progress
    if found is None:
        return None
    try:
        return _record_decoder.decode(found)
    except msgspec.MsgspecError:
        # Callers who may signal the run can write any progress and result.
        return None


def status_of(job: JobView) -> tuple[Status, str]:
    """Return the status of a notification and its reason; reads the job's runs and trail."""
    status, reason = _own_status(job)
    for note in _notes(job):
        if status is Status.DELIVERED:
            # It has arrived, whatever its provider reports afterwards.
            break
        status, reason = NOTED[note.what], note.reason
    return status, reason


def _own_status(job: JobView) -> tuple[Status, str]:
    """Return the status and its reason, without the notes made after the end."""
    record = record_of(job)
    if job.state is State.DEAD or (job.state is State.CANCELLED and _sent(job) is None):
        failed = job.state is State.DEAD
        return Status.FAILED if failed else Status.CANCELLED, job.reason
    if record is not None:
        return record.status, record.reason
    ended = job.state in {State.SUCCEEDED, State.CANCELLED}
    return Status.SENT if ended else Status.QUEUED, job.reason


def _notes(job: JobView) -> Sequence[NoteView]:
    """Return the notes made after the end, oldest first."""
    return [one for one in job.trail if one.what in NOTED]


def notification_of(job: JobView) -> Notification:
    """Return the notification of a job; reads its runs and trail."""
    args, (status, reason) = read_args(job.args), status_of(job)
    sent = _sent(job)
    due_at = job.runs[0].due_at if job.runs else job.due_at
    handed_at = None if sent is None else sent.handed_at
    return Notification(
        id=job.id,
        recipient=job.subject or "",
        channels=tuple(args.channels),
        channel=job.stage,
        status=status,
        reason=reason,
        category=args.category,
        priority=args.level,
        template=args.template,
        created_at=job.created_at,
        due_at=due_at,
        sent_at=handed_at,
        late_ms=None if handed_at is None else max(0, handed_at - due_at),
        attempts=sum(one.handed_at is not None for one in job.runs),
        events=_events(job),
    )


def _events(job: JobView) -> tuple[Event, ...]:
    found = [Event(status=Status.QUEUED, at=job.created_at, channel="", reason="")]
    for run in job.runs:
        found += _of_run(job, run)
    status, reason = _own_status(job)
    if job.finished_at is not None and found[-1].status is not status:
        found.append(Event(status=status, at=job.finished_at, channel=job.stage, reason=reason))
    for note in _notes(job):
        status = NOTED[note.what]
        if found[-1].status is Status.DELIVERED:
            break
        if found[-1].status is not status:
            event = Event(status=status, at=note.at, channel=job.stage, reason=note.reason)
            found.append(event)
    return tuple(found)


def _of_run(job: JobView, run: RunView) -> list[Event]:
    last = run.run == job.run
    # Once the provider has answered, its id is a key of the run, even if the message fails later.
    sent = any(key.startswith(known_as("")) for key in run.keys)
    sent = sent or (last and status_of(job)[0] in {Status.SENT, Status.DELIVERED})
    found: list[Event] = []
    if run.handed_at is not None and sent:
        record = record_of(job) if last else None
        why = record.reason if record is not None and record.status is Status.SENT else ""
        found.append(Event(status=Status.SENT, at=run.handed_at, channel=run.stage, reason=why))
    if run.error and run.ended_at is not None and not last:
        found.append(
            Event(status=Status.FAILED, at=run.ended_at, channel=run.stage, reason=run.error)
        )
    return found


def _sent(job: JobView) -> RunView | None:
    """Return the last run, if it was handed over and may have sent something."""
    last = job.runs[-1] if job.runs else None
    sent = last is not None and last.handed_at is not None and last.outcome not in BACK
    return last if sent else None
