"""Intake: notifications are validated, deduplicated, and stored as jobs.

Deduplication is exact, by recipient, channel and key; the window starts with the first accepted
notification. The engine's own job keys do not fit: they last until some time after the job's end,
and refuse another body. Here a window ends at a fixed time, and a duplicate may have another text.
So the keys are rows of the directory, and none are kept in memory. There are about as many as keys
in the last window, because each batch that adds rows removes up to twice as many expired ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Annotated, Any, Self

import msgspec
from pydantic import Field, model_validator
from sqlalchemy import TextClause, delete, select, text
from sqlalchemy.ext.asyncio import AsyncSession
from uuid_utils import uuid7

from headway.core.errors import IdConflict, InvalidValue
from headway.core.job import MAX_BATCH, NewJob
from headway.core.retry import draw
from headway.server.bodies.base import Body, FailFastList, Name, WhenNotSeconds, one_or_many
from headway.server.finding import jobs_by_id
from headway.server.problems import add_members
from headway.server.service import Service
from headway.systems.directory.records import MAX_ID
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.message_templates import TemplateSource
from headway.systems.notifications.notification import NOTIFICATION, Channel, Priority
from headway.systems.notifications.records import (
    DIGEST_BYTES,
    DedupeKey,
    MessageTemplate,
    Recipient,
)

MOST = 10_000
"""Maximum notifications per request."""
URGENT, HIGH, NORMAL, LOW = 0, 128, 512, 900
"""Priorities of jobs; smaller numbers first."""
_AS_GIVEN = {"category", "template", "data", "title", "text", "html"}
"""Fields that the job's arguments copy from the body."""
_OF_PRIORITY = {Priority.HIGH: HIGH, Priority.NORMAL: NORMAL, Priority.LOW: LOW}


Id = Annotated[str, Field(min_length=1, max_length=MAX_ID)]


class NotificationBody(Body):
    """A notification: a template with data, or literal text."""

    recipient: Id = Field(description="Id of the recipient.", examples=["ada"])
    channel: Channel | None = Field(
        default=None, strict=False, description="Channel to send by.", examples=["email"]
    )
    channels: (
        Annotated[
            list[Annotated[Channel, Field(strict=False)]],
            Field(min_length=1, max_length=len(Channel)),
        ]
        | None
    ) = Field(
        default=None,
        description="Channels, instead of a single one; the next is tried if one is not possible.",
    )
    template: Id | None = Field(default=None, description="Id of the message template.")
    data: dict[str, Any] = Field(
        default={}, description="Data for the template; apps and webhooks get it as well."
    )
    title: TemplateSource = Field(default="", description="Literal title, instead of a template.")
    text: TemplateSource = Field(default="", description="Literal text, instead of a template.")
    html: TemplateSource | None = Field(default=None, description="Literal HTML, for e-mail.")
    scheduled_at: WhenNotSeconds | None = Field(
        default=None, description="When to send it. By default, or if in the past, now."
    )
    expires_at: WhenNotSeconds | None = Field(
        default=None,
        description="When it expires, later than `scheduled_at`; after that, it is no longer sent.",
    )
    priority: Priority = Field(
        default=Priority.NORMAL, strict=False, description="Priority: high, normal or low."
    )
    category: str = Field(
        default="general",
        pattern=r"^[a-z0-9][a-z0-9_.-]{0,39}$",
        description="Category, such as otp, alert or news; recipients can opt out of categories.",
    )
    dedupe_key: Name | None = Field(
        default=None,
        description="Within the window, later notifications with the same key are duplicates of "
        "the first.",
    )

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.channel is None) == (self.channels is None):
            both = "" if self.channel is None else "`channel` and `channels` cannot be combined: "
            message = f"{both}pass `channel`, or `channels` in the order to try"
            raise ValueError(message)
        if len(set(self.order)) < len(self.order):
            message = "`channels` contains a channel twice"
            raise ValueError(message)
        given = {"text": self.text, "title": self.title, "html": self.html is not None}
        literal = [name for name, one in given.items() if one]
        if (self.template is None) != bool(literal):
            both = f"`template` and `{literal[0]}` cannot be combined: " if literal else ""
            message = f"{both}pass `template` (and `data`), or literal `text` (and `title`, `html`)"
            raise ValueError(message)
        if self.template is None and not self.text:
            message = "`text` is empty; every channel needs it"
            raise ValueError(message)
        return self

    @property
    def order(self) -> Sequence[Channel]:
        """Channels, in the order to try."""
        return self.channels or [one for one in (self.channel,) if one is not None]


Many = Annotated[FailFastList[NotificationBody], Field(min_length=1, max_length=MOST)]
OneOrMany = Annotated[NotificationBody | Many, one_or_many(NotificationBody, Many, MOST)]
"""One notification, or a list of up to 10,000."""


@dataclass(frozen=True, slots=True)
class NotificationTaken:
    """The notification that now exists.

    Attributes:
        id: id of the notification; for a duplicate, that of the first.
        created: whether this request created it.
        due_at: when it is due, ms UTC; None for a duplicate.
    """

    id: str
    created: bool
    due_at: int | None


async def create_notifications(
    service: Service, context: NotifyContext, bodies: Sequence[NotificationBody]
) -> list[NotificationTaken]:
    """Create notifications; when this returns, they are stored.

    Dedupe keys are taken before the jobs are stored. If the store fails in between, the caller gets
    no id and sends again, but its keys are held by notifications that were never stored. So the
    first notification of each duplicate is looked up, and if it is missing, the duplicate is stored
    under its id.

    Returns:
        The notification that now exists for each body, in order.

    Raises:
        InvalidValue: a body names a recipient, template or channel that does not exist; `item` has
            its index, and nothing was stored.
    """
    now = await service.now()
    await _check(context, bodies)
    ids = [str(uuid7()) for _ in bodies]
    digests = [
        None
        if body.dedupe_key is None
        else digest_of(body.recipient, body.order[0], body.dedupe_key)
        for body in bodies
    ]
    wanted = [(key, id_) for key, id_ in zip(digests, ids, strict=True) if key is not None]
    holders: Mapping[bytes, str] = {}
    if wanted:
        window_ms = context.settings.dedupe_window
        async with context.directory.change() as session:
            holders = await take_keys(session, wanted, now=now, window_ms=window_ms)
    kept = [id_ if key is None else holders[key] for key, id_ in zip(digests, ids, strict=True)]
    missing = await _missing(
        context, {one for one, own in zip(kept, ids, strict=True) if one != own}
    )
    jobs: list[NewJob] = []
    due: dict[str, int] = {}
    places = zip(bodies, kept, ids, strict=True)
    async for body, one, own in service.in_turns(list(places)):
        if one == own or one in missing:
            missing.discard(one)
            jobs.append(_job(context, body, one, now))
            due[one] = jobs[-1].due_at or now
    made = await _store(service, context, jobs, keyed=frozenset(holders.values()))
    # If several in a request have the same key, only the first is new.
    new = ((one, made.pop(one, False)) for one in kept)
    return [NotificationTaken(one, created, due[one] if created else None) for one, created in new]


async def _store(
    service: Service, context: NotifyContext, jobs: Sequence[NewJob], *, keyed: Set[str]
) -> dict[str, bool]:
    """Store jobs; return by id whether each was created.

    Before a notification with a key is stored, a duplicate with another text can be stored under
    its id; see `create_notifications`. The other notifications must be stored nevertheless.

    Raises:
        IdConflict: an id without a key belongs to another job.
    """
    made: dict[str, bool] = {}
    while True:
        try:
            sent = await context.send(service, jobs)
        except IdConflict:
            missing = await _missing(context, {job.id for job in jobs})
            if len(missing) == len(jobs):
                raise
            made |= {job.id: job.id not in keyed for job in jobs if job.id not in missing}
            jobs = [job for job in jobs if job.id in missing]
        else:
            return made | {one.id: one.created for one in sent}


async def _missing(context: NotifyContext, ids: set[str]) -> set[str]:
    """Return the ids that hold a key but were never stored."""
    found = {job.id async for job in jobs_by_id(context.store, sorted(ids))}
    if context.calendar is not None:
        found.update(await context.calendar.find(ids - found))
    return ids - found


def _job(context: NotifyContext, body: NotificationBody, id_: str, now: int) -> NewJob:
    settings = context.settings
    urgent = body.category in settings.urgent
    due_at = now if body.scheduled_at is None else max(now, body.scheduled_at.resolved(now))
    expires_at = None if body.expires_at is None else body.expires_at.resolved(now)
    if body.priority is Priority.LOW and not urgent:
        jitter = settings.jitter
        if expires_at is not None:
            # It must not expire only because it was spread.
            jitter = min(jitter, max(0, expires_at - due_at) // 2)
        due_at += int(draw(f"jitter {id_}") * (jitter + 1))
    first = body.order[0]
    job = context.app.kind(NOTIFICATION).make(
        job_id=id_,
        lane=first.lane,
        subject=body.recipient,
        priority=URGENT if urgent else _OF_PRIORITY[body.priority],
        channels=list(body.order),
        level=body.priority,
        expires_at=expires_at,
        **body.model_dump(include=_AS_GIVEN),
    )
    return job.changed(
        stage=first.value, gates=context.uses(first), due_at=due_at, expires_at=expires_at
    )


async def _check(context: NotifyContext, bodies: Sequence[NotificationBody]) -> None:
    """Validate that all recipients, templates and channels exist, and that none expires too early.

    Raises:
        InvalidValue: one does not, or does; `item` has the index of its body.
    """
    async with context.directory.read() as session:
        recipients = {body.recipient for body in bodies}
        known: set[str] = set()
        for step in _steps(recipients):
            known.update(await session.scalars(select(Recipient.id).where(Recipient.id.in_(step))))
        templates = {body.template for body in bodies if body.template is not None}
        for step in _steps(templates):
            table = MessageTemplate
            rows = await session.execute(select(table.id, table.channels).where(table.id.in_(step)))
            known.update(f"{id_}\0{name}" for id_, channels in rows for name in channels)
    for n, body in enumerate(bodies):
        wrong = _fault(context, body, known)
        if wrong is None:
            continue
        if len(bodies) > 1:
            wrong = InvalidValue(f"[{n}]: {wrong.message}", hint=wrong.hint)
            add_members(wrong, item=n)
        raise wrong


def _steps(ids: set[str]) -> list[tuple[str, ...]]:
    ordered = tuple(sorted(ids))
    return [ordered[start : start + MAX_BATCH] for start in range(0, len(ordered), MAX_BATCH)]


def _fault(context: NotifyContext, body: NotificationBody, known: set[str]) -> InvalidValue | None:
    if body.recipient not in known:
        message = f"there is no recipient {body.recipient!r}"
        return InvalidValue(message, hint="POST /recipients adds one")
    for channel in body.order:
        if channel not in context.senders:
            message = f"the channel {channel} has no sender"
            return InvalidValue(message, hint=f"add a table [notifications.senders.{channel}]")
        names = (f"{body.template}\0{channel}", f"{body.template}\0default")
        if body.template is not None and not any(one in known for one in names):
            message = f"there is no template {body.template!r} with text for {channel}"
            return InvalidValue(message, hint="GET /message-templates lists them")
    if body.scheduled_at is not None and body.expires_at is not None:
        now = context.timing.wall_at()
        if body.scheduled_at.resolved(now) >= body.expires_at.resolved(now):
            message = "`scheduled_at` is not before `expires_at`: it would expire before it is sent"
            return InvalidValue(message, hint="pass a later `expires_at`")
    return None


STEP = 500
"""Keys per statement."""


def digest_of(recipient: str, channel: Channel, key: str) -> bytes:
    """Return a hash that identifies a key, so that rows are small however long the texts are."""
    whole = msgspec.json.encode([recipient, channel, key])
    return blake2b(whole, digest_size=DIGEST_BYTES).digest()


async def take_keys(
    session: AsyncSession, wanted: Sequence[tuple[bytes, str]], *, now: int, window_ms: int
) -> Mapping[bytes, str]:
    """Assign each key to the first notification that wants it.

    Args:
        session: in a transaction; the keys are taken when it commits.
        wanted: pairs of a digest and a notification's id; of several with one key, the first gets
            it.
        window_ms: how long a key stays taken.

    Returns:
        The notification that has each key now, by digest: the first in `wanted`, or an earlier one.
    """
    first: dict[bytes, str] = {}
    for digest, id_ in wanted:
        first.setdefault(digest, id_)
    # Sorted, so that concurrent batches cannot deadlock.
    ordered = sorted(first.items())
    holders: dict[bytes, str] = {}
    for start in range(0, len(ordered), STEP):
        step = ordered[start : start + STEP]
        taken = await _insert(session, step, now, now + window_ms)
        held = [digest for digest, _ in step if digest not in taken]
        holders |= {digest: first[digest] for digest in taken}
        if held:
            asked = select(DedupeKey.digest, DedupeKey.id).where(DedupeKey.digest.in_(held))
            holders |= {bytes(digest): id_ for digest, id_ in await session.execute(asked)}
    key = DedupeKey.digest
    old = select(key).where(DedupeKey.until_at <= now).order_by(DedupeKey.until_at)
    # Concurrent batches may be taking these keys again.
    free = old.limit(2 * len(ordered)).with_for_update(skip_locked=True)
    remove = delete(DedupeKey).where(key.in_(free))
    await session.execute(remove, execution_options={"synchronize_session": False})
    return holders


async def _insert(
    session: AsyncSession, step: Sequence[tuple[bytes, str]], now: int, until_at: int
) -> set[bytes]:
    values: dict[str, object] = {"now": now, "until": until_at}
    for n, (digest, id_) in enumerate(step):
        values[f"d{n}"], values[f"i{n}"] = digest, id_
    rows = await session.execute(_insert_text(len(step)), values)
    return {bytes(digest) for (digest,) in rows}


@lru_cache(maxsize=64)
def _insert_text(count: int) -> TextClause:
    rows = ", ".join(f"(:d{n}, :i{n}, :until)" for n in range(count))
    return text(
        f"INSERT INTO notify_keys (digest, id, until_at) VALUES {rows} "  # noqa: S608  (numbered parameters)
        "ON CONFLICT (digest) DO UPDATE SET id = excluded.id, until_at = excluded.until_at "
        "WHERE notify_keys.until_at <= :now RETURNING digest"
    )
