"""Convert Kafka messages to jobs, and store batches of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import msgspec
from uuid_utils import uuid7

from headway.core.duration import parse_duration
from headway.core.errors import (
    BacklogFull,
    CallerError,
    InvalidArguments,
    InvalidValue,
    PayloadTooLarge,
)
from headway.core.instant import format_instant, parse_instant
from headway.core.job import DEFAULT_PRIORITY, MAX_ARGS, NewJob
from headway.core.naming import MAX_NAME, check_name
from headway.runtime.app import App
from headway.runtime.handler import RESERVED
from headway.runtime.kind_options import check_priority
from headway.runtime.tracing import caused_by

KIND, LANE, TENANT, SUBJECT, KEY = (
    "headway-kind",
    "headway-lane",
    "headway-tenant",
    "headway-subject",
    "headway-key",
)
DUE, EXPIRES, PRIORITY = "headway-due", "headway-expires", "headway-priority"
TRACE = "traceparent"

EARLIEST = 100_000_000_000
"""A time in 1973, in ms: a smaller number was meant as seconds."""

ReadValue = Callable[["Incoming"], Mapping[str, object]]
"""Read the arguments of a job from a message's value.

Raises:
    InvalidValue: the value does not have the expected format.
"""


class Incoming(NamedTuple):
    """A message as received.

    Attributes:
        offset: offset within its partition.
        headers: the last value of each name; none if a name is not UTF-8.
        produced_at: the message's timestamp in ms UTC; the time of reading if it has none.
        has_bad_header: whether the name of a header is not UTF-8.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Mapping[str, bytes]
    produced_at: int
    has_bad_header: bool = False
    has_timestamp: bool = True

    @property
    def place(self) -> str:
        """Return topic, partition, offset and timestamp, which identify the message.

        If a topic is deleted and created again, its offsets repeat, but not with their timestamps.
        """
        place = f"{self.topic}-{self.partition}-{self.offset}"
        return f"{place}-{self.produced_at}" if self.has_timestamp else place

    @property
    def trace(self) -> str | None:
        """Return the W3C traceparent header."""
        found = self.headers.get(TRACE)
        return None if found is None else found.decode(errors="replace")

    def header(self, name: str) -> str | None:
        """Return a header's text; None if it is missing.

        Raises:
            InvalidValue: the header is not UTF-8.
        """
        found = self.headers.get(name)
        if found is None:
            return None
        try:
            return found.decode()
        except UnicodeDecodeError:
            message = f"the header {name} is not UTF-8"
            raise InvalidValue(message) from None


def read_json(message: Incoming) -> Mapping[str, object]:
    """Return the arguments in a JSON value; an empty or missing value has none.

    Raises:
        InvalidValue: the value is not a JSON object.
    """
    if not message.value:
        return {}
    try:
        return cast("Mapping[str, object]", msgspec.json.decode(message.value, type=dict[str, Any]))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        text = f"the value is not a JSON object: {error}"
        raise InvalidValue(text[:400]) from None


class JobReader:
    """A converter of messages to jobs.

    Args:
        read: function that reads the arguments from a message's value.
        app: app whose kinds define gates and policy; None for plain jobs of any kind.
        kind: kind of messages without the header.
        lane: lane of messages without the header (default: the kind's, or main).
        by_offset: whether the key of a job is the message's place, not the message's key.
    """

    def __init__(
        self,
        read: ReadValue = read_json,
        *,
        app: App | None = None,
        kind: str | None = None,
        lane: str | None = None,
        by_offset: bool = False,
    ) -> None:
        self._read = read
        self._app = app
        self._kind = kind
        self._lane = lane
        self._by_offset = by_offset

    def job(self, message: Incoming) -> NewJob:
        """Return the job for a message.

        Raises:
            InvalidValue: the message has no kind, or a header or its value is not valid.
            CallerError: the app refuses the job.
        """
        kind = message.header(KIND) or self._kind
        if kind is None:
            text = f"the message has no header {KIND}"
            raise InvalidValue(text, hint="send it, or pass --kind to the bridge")
        values = self._read(message)
        due_at = _due_at(message.header(DUE))
        return (
            self._plain(message, kind, values, due_at)
            if self._app is None
            else self._declared(self._app, message, kind, values, due_at)
        )

    def _key(self, message: Incoming) -> str:
        given = message.header(KEY)
        if given is not None:
            return check_name("key", given)
        if self._by_offset or not message.key:
            return message.place
        return key_text(message.key)

    def _declared(
        self,
        app: App,
        message: Incoming,
        kind: str,
        values: Mapping[str, object],
        due_at: int | None,
    ) -> NewJob:
        taken = RESERVED.intersection(values)
        if taken:
            text = f"{kind}: {min(taken)!r} is an option, not an argument"
            raise InvalidArguments(text, hint="rename the field; options are headers")
        priority, expires = message.header(PRIORITY), message.header(EXPIRES)
        given: dict[str, Any] = dict(values)
        declared = app.kind(kind)
        job = declared.make(
            due=None if due_at is None else format_instant(due_at),
            lane=message.header(LANE) or self._lane,
            tenant=message.header(TENANT),
            subject=message.header(SUBJECT),
            key=self._key(message),
            expires=expires,
            priority=None if priority is None else _priority(priority),
            **given,
        )
        if due_at is not None or job.expires_at is None:
            return job
        # Time in the topic counts: without a due time, `make` counts from now.
        span = declared.options.expires_ms if expires is None else parse_duration(expires)
        return job.changed(expires_at=message.produced_at + (span or 0))

    def _plain(
        self, message: Incoming, kind: str, values: Mapping[str, object], due_at: int | None
    ) -> NewJob:
        args = msgspec.json.encode(values)
        if len(args) > MAX_ARGS:
            text = f"the arguments have {len(args)} bytes"
            raise PayloadTooLarge(text, hint=f"at most {MAX_ARGS}; store them, send a reference")
        expires, priority = message.header(EXPIRES), message.header(PRIORITY)
        starts_at = message.produced_at if due_at is None else due_at
        subject = message.header(SUBJECT)
        return NewJob(
            id=str(uuid7()),
            kind=check_name("kind", kind),
            lane=check_name("lane", message.header(LANE) or self._lane or "main"),
            tenant=check_name("tenant", message.header(TENANT) or "", empty=True),
            subject=None if subject is None else check_name("subject", subject),
            args=args,
            priority=DEFAULT_PRIORITY if priority is None else _priority(priority),
            due_at=due_at,
            expires_at=None if expires is None else starts_at + parse_duration(expires),
            key=self._key(message),
        )


def key_text(key: bytes) -> str:
    """Return a message's key as a job's key: its text, or its SHA-256 if it is not a valid name."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = ""
    if text and len(text) <= MAX_NAME and "\0" not in text:
        return text
    return f"sha256:{sha256(key).hexdigest()}"


def _due_at(text: str | None) -> int | None:
    """Parse a due time: ISO 8601 with an offset, or whole milliseconds since 1970.

    Raises:
        InvalidValue: the text is neither, or looks like seconds.
    """
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        return parse_instant(text)
    at = int(text[:16])
    if at < EARLIEST:
        message = f"{DUE} is {text[:40]}, a time around 1970"
        raise InvalidValue(message, hint="pass milliseconds, not seconds")
    return parse_instant(format_instant(at))


def _priority(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        message = f"{PRIORITY} is {text[:40]!r}, not a whole number"
        raise InvalidValue(message)
    return check_priority(int(text[:16]))


T = TypeVar("T")


class Created(Protocol):
    """The result of storing one message."""

    @property
    def created(self) -> bool:
        """Whether it is new."""
        ...


class Stored:
    """The result of storing a batch.

    Attributes:
        created: indexes of the messages that created something.
        unreadable: errors of the refused messages by index; all others are stored.
    """

    def __init__(self) -> None:
        self.created: list[int] = []
        self.unreadable: dict[int, CallerError] = {}

    def read(
        self, messages: Sequence[Incoming], read: Callable[[Incoming], T]
    ) -> list[tuple[int, T]]:
        """Convert messages, and return results with indexes; record unreadable messages."""
        found: list[tuple[int, T]] = []
        for index, message in enumerate(messages):
            if message.has_bad_header:
                self.unreadable[index] = InvalidValue("the name of a header is not UTF-8")
                continue
            try:
                found.append((index, read(message)))
            except CallerError as error:
                self.unreadable[index] = error
        return found

    async def store(
        self,
        asked: Sequence[tuple[int, T]],
        store: Callable[[Sequence[T]], Awaitable[Iterable[Created]]],
    ) -> None:
        """Store a batch; split a refused batch in halves until each refused item is alone.

        Raises:
            BacklogFull: a lane has reached its maximum backlog.
        """
        if not asked:
            return
        try:
            stored = await store([one for _, one in asked])
        except BacklogFull:
            raise
        except CallerError as error:
            if len(asked) == 1:
                self.unreadable[asked[0][0]] = error
                return
            half = len(asked) // 2
            await self.store(asked[:half], store)
            await self.store(asked[half:], store)
            return
        self.created += [n for (n, _), one in zip(asked, stored, strict=True) if one.created]


class Sink(Protocol):
    """A store for messages. A system may provide a sink for its own format."""

    async def put(self, messages: Sequence[Incoming]) -> Stored:
        """Store messages; on return, they are durable.

        A message may be passed again after a crash or a rebalance; it is stored only once.

        Args:
            messages: up to 1000.

        Raises:
            BacklogFull: a lane has reached its maximum backlog; some messages may be stored.
            StoreError: the store is unavailable or failed; some messages may be stored.
        """
        ...


class EnqueueSink:
    """A sink that enqueues a job for each message, all jobs of a batch in one step."""

    def __init__(self, app: App, reader: JobReader) -> None:
        self._app = app
        self._reader = reader

    async def put(self, messages: Sequence[Incoming]) -> Stored:
        """See `Sink.put`."""
        stored = Stored()
        # On a thread, because a schema may have to be fetched.
        found = await asyncio.to_thread(stored.read, messages, self._read)
        with caused_by({job.id: trace for _, (job, trace) in found if trace}):
            await stored.store([(n, job) for n, (job, _) in found], self._app.send_many_async)
        return stored

    def _read(self, message: Incoming) -> tuple[NewJob, str | None]:
        return self._reader.job(message), message.trace
