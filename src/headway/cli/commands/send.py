"""`headway send`: creates jobs, with the options of an App's kind or without gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import typer
from uuid_utils import uuid7

from headway.cli.app_file import open_app
from headway.cli.command import command, new_command
from headway.cli.options import AppName, complete_kind, duration_option
from headway.cli.progress import Meter, progress
from headway.cli.session import CommandSession
from headway.cli.text import to_json
from headway.contract.store import Sent, Store
from headway.contract.views import StatsQuery
from headway.core.duration import parse_duration
from headway.core.errors import InvalidArguments, InvalidValue, PayloadTooLarge
from headway.core.instant import format_instant, optional_moment
from headway.core.job import DEFAULT_PRIORITY, MAX_ARGS, MAX_BATCH, MAX_PRIORITY, NewJob
from headway.core.naming import check_name, counted
from headway.runtime.app import App
from headway.runtime.handler import RESERVED

KEPT = 1_000
"""Maximum number of replies that are kept for the output of a large batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SendOptions:
    """The options of a job, in addition to its arguments."""

    due: Annotated[
        str | None,
        typer.Option(
            metavar="WHEN",
            help='When it is due: a duration from now ("20m"), or an instant with an offset.',
        ),
    ] = None
    lane: Annotated[
        str | None, typer.Option(help="Lane of the job. Defaults to the lane of its kind, or main.")
    ] = None
    priority: Annotated[
        int | None,
        typer.Option(
            min=0, max=MAX_PRIORITY, help="Priority; lower numbers start first (default: 512)."
        ),
    ] = None
    tenant: Annotated[str | None, typer.Option(help="Customer the job runs for.")] = None
    subject: Annotated[str | None, typer.Option(help="What the job is about.")] = None
    key: Annotated[
        str | None, typer.Option(help="Deduplication key: sending it again creates no second job.")
    ] = None
    expires: Annotated[
        str | None,
        duration_option('How long after its due time it may still start, such as "1h".'),
    ] = None


class SentJobs(NamedTuple):
    """The result of sending jobs.

    Attributes:
        replies: The first `KEPT` of them.
        created: Number of jobs created, of all jobs sent.
    """

    replies: list[Sent]
    created: int


def kind_job(
    app: App,
    kind: str,
    texts: Mapping[str, str],
    options: SendOptions,
    due_at: int | None,
    now: int,
) -> NewJob:
    """Return a job of an App's kind, with its gates and policy.

    Args:
        texts: The arguments as they were written, by name.
        due_at: ms UTC; None for now.
        now: the store's time, from which an expiry counts then.

    Raises:
        InvalidArguments: an argument has the name of an option, or the handler refuses it.
    """
    declared = app.kind(kind)
    taken = RESERVED.intersection(texts)
    if taken:
        message = f"{kind}: {min(taken)!r} is not an argument but an option"
        raise InvalidArguments(message, hint=f"pass it as --{min(taken).replace('_', '-')}")
    arguments = next(iter(declared.handlers.values())).arguments
    values: dict[str, Any] = arguments.from_texts(texts, read_values(texts))
    chosen: dict[str, Any] = {
        "due": format_instant(now if due_at is None else due_at),
        "lane": options.lane,
        "priority": options.priority,
        "tenant": options.tenant,
        "subject": options.subject,
        "key": options.key,
        "expires": options.expires,
    }
    try:
        return declared.make(**chosen, **values).changed(due_at=due_at)
    except InvalidArguments as error:
        hint = error.hint or _quoting(texts)
        raise InvalidArguments(error.message, hint=hint) from None


def _quoting(texts: Mapping[str, str]) -> str:
    """Return a hint about quoting: a value that is valid JSON, such as a number, is not text."""
    given = " ".join(f"{name}={text}" for name, text in texts.items())
    return f"""passed were {given:.200}; quote a text that looks like JSON: phone='"0155"'"""


def plain_job(
    kind: str, texts: Mapping[str, str], options: SendOptions, due_at: int | None, now: int
) -> NewJob:
    """Return a job without gates, whose arguments are not validated.

    Args:
        texts: The arguments as they were written, by name.
        due_at: ms UTC; None for now.
        now: the store's time, ms UTC.

    Raises:
        PayloadTooLarge: the arguments exceed the limit.
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


async def send_jobs(store: Store, make: Callable[[], NewJob], count: int, meter: Meter) -> SentJobs:
    """Enqueue `count` jobs, up to a thousand per step."""
    replies: list[Sent] = []
    created = 0
    for start in range(0, count, MAX_BATCH):
        step = await store.enqueue([make() for _ in range(min(MAX_BATCH, count - start))])
        created += sum(reply.created for reply in step)
        replies += step[: KEPT - len(replies)]
        meter(start + len(step))
    return SentJobs(replies, created)


def read_pairs(pairs: Sequence[str]) -> dict[str, str]:
    """Parse name=value pairs.

    Returns:
        The values by name, in the given order, as they were written.

    Raises:
        InvalidValue: a pair has no name or no `=`, or a name occurs twice.
    """
    values: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            message = f"the argument {pair[:80]!r} is not a name=value"
            raise InvalidValue(message, hint="for example phone=+15550100 urgent=true")
        if name in values:
            message = f"the argument {name!r} is passed twice"
            raise InvalidValue(message, hint="pass it once")
        values[name] = text
    return values


def read_values(texts: Mapping[str, str]) -> dict[str, object]:
    """Parse values by name: as JSON if they are valid JSON, otherwise as text.

    `phone='"0155"'` is a text that looks like a number.
    """
    return {name: _value(name, text) for name, text in texts.items()}


def read_object(option: str, text: str) -> bytes:
    """Parse a JSON object, and return it as UTF-8 on one line.

    Raises:
        InvalidValue: it is not valid JSON, or not an object.
    """
    try:
        found: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError) as error:
        message = f"{option} is not valid JSON: {error}"
        raise InvalidValue(message, hint=_OBJECT) from None
    if not isinstance(found, dict):
        message = f"{option} is not a JSON object"
        raise InvalidValue(message, hint=_OBJECT)
    return to_json(cast("dict[str, object]", found))


_OBJECT = """for example '{"phone": "+15550100"}'"""


def _value(name: str, text: str) -> object:
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text
    except UnicodeEncodeError:
        message = f"the argument {name!r} is not valid Unicode"
        raise InvalidValue(message, hint="write it in UTF-8") from None


app = new_command()


@command(app)
def send(
    session: CommandSession,
    kind: Annotated[str, typer.Argument(help="Kind of the job.", autocompletion=complete_kind)],
    options: SendOptions,
    arguments: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME=VALUE",
            help="Argument of the job; parsed as JSON if it is valid JSON, otherwise text.",
        ),
    ] = None,
    app_name: AppName = None,
    count: Annotated[int, typer.Option(min=1, help="Number of identical jobs to create.")] = 1,
) -> None:
    """Send a job, or many copies of it, and print its id.

    With --app, arguments are validated against the handler, and the job gets the gates and policy
    of its kind. Without it, arguments are not validated and the job has no gates. The kind `noop`
    does nothing and needs no App.

    With --json: {"jobs": [{"id", "created"}], "created": n}, at most the first thousand jobs.

    Raises:
        InvalidValue: an option is not valid, or a key was passed for several jobs.
    """
    if options.key is not None and count > 1:
        message = f"--key creates one job, but --count asks for {count}"
        raise InvalidValue(message, hint="omit one of them")
    with_app = app_name is not None or session.settings.app is not None
    opened = open_app(session, app_name) if with_app else None
    texts = read_pairs(arguments or [])
    due = optional_moment("--due", options.due)

    async def into(store: Store) -> SentJobs:
        now = (await store.read(StatsQuery())).now
        due_at = None if due is None else due.resolved(now)

        def make() -> NewJob:
            if opened is not None:
                return kind_job(opened, kind, texts, options, due_at, now)
            return plain_job(kind, texts, options, due_at, now)

        return await send_jobs(store, make, count, meter)

    with progress(session.terminal, "send jobs", count) as meter:
        if opened is None:
            sent = session.with_store(into, make=True)
        else:
            sent = session.with_app(opened, into)
    _print_sent(session, sent)


def _print_sent(session: CommandSession, sent: SentJobs) -> None:
    if session.json:
        session.terminal.document({"jobs": sent.replies, "created": sent.created})
    elif len(sent.replies) == 1:
        session.terminal.line(sent.replies[0].id)
        if not sent.created:
            session.terminal.remark("a job with this key already exists", "dim")
    else:
        session.terminal.line(f"{counted(sent.created, 'job')} sent")
