"""Making jobs on the command line: as an App's kind says, or plain."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import typer
from uuid_utils import uuid7

from headway.cli.json_text import to_json
from headway.cli.named_values import read_values
from headway.cli.progress import Meter
from headway.contract.enqueue import Enqueued
from headway.contract.store import Store
from headway.core.duration import parse_duration
from headway.core.errors import InvalidArguments, PayloadTooLarge
from headway.core.instant import format_instant
from headway.core.job import DEFAULT_PRIORITY, MAX_ARGS, MAX_BATCH, MAX_PRIORITY, NewJob
from headway.core.naming import check_name
from headway.runtime.app import App
from headway.runtime.arguments import RESERVED

KEPT = 1_000
"""Replies that are kept to be told, of many."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendOptions:
    """What is said of a job beside its arguments."""

    due: Annotated[
        str | None,
        typer.Option(help='When: "20m" from now, or an instant with its offset; else now.'),
    ] = None
    lane: Annotated[
        str | None, typer.Option(help="Where it waits; else as its kind says, or main.")
    ] = None
    priority: Annotated[
        int | None, typer.Option(min=0, max=MAX_PRIORITY, help="Smaller first; 512 is usual.")
    ] = None
    tenant: Annotated[str | None, typer.Option(help="For whom it is.")] = None
    subject: Annotated[str | None, typer.Option(help="What it is about.")] = None
    key: Annotated[
        str | None, typer.Option(help="Makes one job, however often it is sent with this key.")
    ] = None
    expires: Annotated[
        str | None, typer.Option(help='How long after it is due it may still start, as "1h".')
    ] = None


class Sent(NamedTuple):
    """What was sent.

    Attributes:
        replies: the first thousand.
        created: how many jobs were made, of all.
    """

    replies: list[Enqueued]
    created: int


def kind_job(
    app: App, kind: str, texts: Mapping[str, str], options: SendOptions, due_at: int | None
) -> NewJob:
    """A job as an App's kind says, with its gates and policy.

    Args:
        app: the App.
        kind: the kind's name.
        texts: of the handler's arguments, as they were written.
        options: beside them.
        due_at: ms UTC; None for now.

    Returns:
        A new job.

    Raises:
        UnknownKind: the App has no such kind.
        InvalidArguments: an argument has the name of an option, or the handler refuses it.
    """
    declared = app.kind(kind)
    taken = RESERVED.intersection(texts)
    if taken:
        message = f"{kind}: {min(taken)!r} is no argument but an option"
        raise InvalidArguments(message, hint=f"give it as --{min(taken).replace('_', '-')}")
    arguments = next(iter(declared.handlers.values())).arguments
    values: dict[str, Any] = arguments.from_texts(texts, read_values(texts))
    chosen: dict[str, Any] = {
        "due": None if due_at is None else format_instant(due_at),
        "lane": options.lane,
        "priority": options.priority,
        "tenant": options.tenant,
        "subject": options.subject,
        "key": options.key,
        "expires": options.expires,
    }
    try:
        return declared.make(**chosen, **values)
    except InvalidArguments as error:
        hint = error.hint or """text that looks like JSON needs its own quotes: phone='"0155"'"""
        raise InvalidArguments(error.message, hint=hint) from None


def plain_job(
    kind: str, texts: Mapping[str, str], options: SendOptions, due_at: int | None, now: int
) -> NewJob:
    """A job without gates, its arguments as they are.

    Args:
        kind: any name.
        texts: its arguments, as they were written.
        options: beside them.
        due_at: ms UTC; None for now.
        now: the store's time, ms UTC.

    Returns:
        A new job.

    Raises:
        InvalidValue: a name or a span is unusable.
        PayloadTooLarge: the arguments are above the limit.
    """
    args = to_json(read_values(texts))
    if len(args) > MAX_ARGS:
        message = f"{kind}: the arguments have {len(args)} bytes"
        raise PayloadTooLarge(message, hint=f"at most {MAX_ARGS}; store them, send a reference")
    expires_at = None
    if options.expires is not None:
        expires_at = (now if due_at is None else due_at) + parse_duration(options.expires)
    return NewJob(
        id=str(uuid7()),
        kind=check_name("kind", kind),
        lane="main" if options.lane is None else check_name("lane", options.lane),
        tenant=check_name("tenant", options.tenant or "", empty=True),
        subject=None if options.subject is None else check_name("subject", options.subject),
        args=args,
        priority=DEFAULT_PRIORITY if options.priority is None else options.priority,
        due_at=due_at,
        expires_at=expires_at,
        key=None if options.key is None else check_name("key", options.key),
    )


async def send_jobs(store: Store, make: Callable[[], NewJob], count: int, meter: Meter) -> Sent:
    """Enqueues as many jobs, a thousand a step.

    Args:
        store: where to.
        make: gives a new job each time.
        count: how many.
        meter: told how many were sent.

    Returns:
        What was sent.
    """
    replies: list[Enqueued] = []
    created = 0
    for start in range(0, count, MAX_BATCH):
        step = await store.enqueue([make() for _ in range(min(MAX_BATCH, count - start))])
        created += sum(reply.created for reply in step)
        replies += step[: KEPT - len(replies)]
        meter(start + len(step))
    return Sent(replies, created)
