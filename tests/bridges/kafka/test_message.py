"""What a message contains about its job, tested without a broker."""

from __future__ import annotations

from hashlib import sha256

import msgspec
import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME, TIMESTAMP_NOT_AVAILABLE, Message

import headway as hw
from headway.bridges.kafka.consuming import incoming
from headway.bridges.kafka.message import EnqueueSink, Incoming, JobReader, key_text, read_json
from headway.core.errors import (
    CallerError,
    InvalidArguments,
    InvalidValue,
    PayloadTooLarge,
    UnknownKind,
)
from headway.core.instant import parse_instant

DUE = "2031-05-04T09:30:15.250+02:00"


def message(
    value: bytes | None = b'{"n":1}', key: bytes | None = b"order-7", **headers: bytes
) -> Incoming:
    named = {name.replace("_", "-"): one for name, one in headers.items()}
    return Incoming("orders", 3, 41, key, value, named, 1_700_000_000_123)


def test_every_header_reaches_the_job() -> None:
    job = JobReader().job(
        message(
            headway_kind=b"ship",
            headway_lane=b"bulk",
            headway_tenant=b"acme",
            headway_subject=b"parcel 9",
            headway_due=DUE.encode(),
            headway_expires=b"90s",
            headway_priority=b"17",
        )
    )
    due_at = parse_instant(DUE)
    assert (job.kind, job.lane, job.tenant, job.subject) == ("ship", "bulk", "acme", "parcel 9")
    assert (job.due_at, job.expires_at, job.priority) == (due_at, due_at + 90_000, 17)
    assert (job.args, job.key) == (b'{"n":1}', "order-7")


def test_message_without_headers_uses_kind_and_lane_of_the_bridge() -> None:
    job = JobReader(kind="ship", lane="slow").job(message())
    assert (job.kind, job.lane, job.tenant, job.due_at) == ("ship", "slow", "", None)


def test_headers_override_kind_and_lane_of_the_bridge() -> None:
    reader = JobReader(kind="ship", lane="slow")
    job = reader.job(message(headway_kind=b"bill", headway_lane=b"quick"))
    assert (job.kind, job.lane) == ("bill", "quick")


@pytest.mark.parametrize("due", [DUE, str(parse_instant(DUE))])
def test_due_is_iso_8601_or_milliseconds(due: str) -> None:
    job = JobReader(kind="ship").job(message(headway_due=due.encode()))
    assert job.due_at == parse_instant(DUE)


def test_expiry_without_due_counts_from_the_message_timestamp() -> None:
    job = JobReader(kind="ship").job(message(headway_expires=b"10s"))
    assert job.expires_at == 1_700_000_010_123


@pytest.mark.parametrize(
    ("stamp", "begins_at", "place"),
    [
        (
            (TIMESTAMP_CREATE_TIME, 1_700_000_000_123),
            1_700_000_000_123,
            "orders-3-41-1700000000123",
        ),
        ((TIMESTAMP_NOT_AVAILABLE, -1), 1_800_000_000_000, "orders-3-41"),
    ],
)
def test_message_without_a_timestamp_expires_from_its_reading_which_is_not_in_its_key(
    stamp: tuple[int, int], begins_at: int, place: str
) -> None:
    headers: list[tuple[str, str | bytes | None]] = [("headway-expires", b"10s"), ("empty", None)]
    sent = Message(
        topic="orders", partition=3, offset=41, value=b"{}", headers=headers, timestamp=stamp
    )
    found = incoming(sent, 1_800_000_000_000)
    assert (found.place, found.key, found.headers) == (
        place,
        None,
        {"headway-expires": b"10s"},
    )
    assert JobReader(kind="ship").job(found).expires_at == begins_at + 10_000


@pytest.mark.parametrize("key", [None, b""])
def test_message_without_a_key_is_identified_by_its_offset(key: bytes | None) -> None:
    assert JobReader(kind="ship").job(message(key=key)).key == "orders-3-41-1700000000123"


async def test_messages_of_a_topic_that_was_created_again_are_new() -> None:
    """Its offsets start at 0 again, while the store knows the keys of the old messages."""
    app = hw.App("memory://")
    async with app:
        sink = EnqueueSink(app, JobReader(kind="ship"))
        old = message(key=None)
        new = old._replace(produced_at=old.produced_at + 1)
        assert [(await sink.put([one])).created for one in (old, old, new)] == [[0], [], [0]]


def test_key_that_is_not_a_name_is_hashed() -> None:
    for key in (b"\xff\x00", b"x" * 513, b"a\0b"):
        assert key_text(key) == f"sha256:{sha256(key).hexdigest()}"
    assert key_text("Zoë".encode()) == "Zoë"


def test_key_header_overrides_everything() -> None:
    told = message(headway_key=b"mine")
    assert JobReader(kind="ship").job(told).key == "mine"
    assert JobReader(kind="ship", by_offset=True).job(told).key == "mine"
    assert JobReader(kind="ship", by_offset=True).job(message()).key == "orders-3-41-1700000000123"


@pytest.mark.parametrize("value", [None, b""])
def test_message_without_a_value_has_no_arguments(value: bytes | None) -> None:
    assert JobReader(kind="ship").job(message(value)).args == b"{}"


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (message(b"nonsense"), "not a JSON object"),
        (message(b"[1]"), "not a JSON object"),
        (message(b'{"a":"\xff"}'), "not a JSON object"),
        (message(b"[" * 100_000), "not a JSON object"),
        (message(headway_due=b"tomorrow"), "is not understood"),
        (message(headway_due=b"2031-05-04T09:30"), "no offset"),
        (message(headway_due=b"1700000000"), "a time around 1970"),
        (message(headway_due="²".encode()), "is not understood"),
        (message(headway_due=b"9" * 40), "outside the years"),
        (message(headway_priority=b"-1"), "not a whole number"),
        (message(headway_priority=b"9" * 16), "priority is"),
        (message(headway_expires=b"soon"), "soon"),
        (message(headway_lane=b"\xff"), "headway-lane is not UTF-8"),
        (message(headway_tenant=b"x" * 513), "tenant has 513"),
        (message(headway_key=b""), "key is empty"),
    ],
)
def test_unreadable_message_is_refused_with_a_reason(bad: Incoming, reason: str) -> None:
    with pytest.raises(InvalidValue, match=reason):
        JobReader(kind="ship").job(bad)


def test_message_cannot_pass_the_parameter_self_of_a_method() -> None:
    app = hw.App("memory://")

    @app.job(name="ship")
    async def ship(n: int) -> None: ...

    with pytest.raises(InvalidArguments, match="no argument 'self'"):
        JobReader(app=app, kind="ship").job(message(b'{"n":1,"self":2}'))


def test_message_without_a_kind_is_refused() -> None:
    with pytest.raises(InvalidValue, match="no header headway-kind"):
        JobReader().job(message())


def test_arguments_above_the_limit_are_refused() -> None:
    with pytest.raises(PayloadTooLarge, match="1000010 bytes"):
        JobReader(kind="ship").job(message(b'{"a":"' + b"x" * 1_000_002 + b'"}'))


def test_with_an_app_a_job_has_the_gates_and_policy_of_its_kind() -> None:
    app = hw.App("memory://")

    @app.job(lane="parcels", gates=[hw.Slots("to:{city}", 2)], retry=hw.Backoff(attempts=3))
    async def ship(job: hw.Job, city: str, n: int = 5) -> None: ...

    reader = JobReader(app=app)
    told = message(b'{"city":"Oslo"}', headway_kind=b"ship", headway_due=DUE.encode())
    job = reader.job(told)
    assert [gate.name for gate in job.gates] == ["to:Oslo"]
    assert (job.lane, job.policy.retry.attempts, job.key) == ("parcels", 3, "order-7")
    assert job.due_at == parse_instant(DUE)
    assert msgspec.json.decode(job.args)["city"] == "Oslo"
    refused: list[tuple[Incoming, type[CallerError]]] = [
        (message(b'{"city":3}', headway_kind=b"ship"), InvalidArguments),
        (message(b'{"city":"Oslo","lane":"x"}', headway_kind=b"ship"), InvalidArguments),
        (message(b"{}", headway_kind=b"sink"), UnknownKind),
    ]
    for bad, error in refused:
        with pytest.raises(error):
            reader.job(bad)


def test_with_an_app_every_header_reaches_the_job() -> None:
    app = hw.App("memory://")

    @app.job
    async def ship(job: hw.Job, n: int) -> None: ...

    headers = {
        "headway_lane": b"bulk",
        "headway_tenant": b"acme",
        "headway_subject": b"parcel 9",
        "headway_due": DUE.encode(),
        "headway_expires": b"90s",
        "headway_priority": b"17",
    }
    job = JobReader(app=app).job(message(headway_kind=b"ship", **headers))
    due_at = parse_instant(DUE)
    assert (job.lane, job.tenant, job.subject) == ("bulk", "acme", "parcel 9")
    assert (job.due_at, job.expires_at, job.priority) == (due_at, due_at + 90_000, 17)
    assert JobReader(app=app, lane="slow").job(message(headway_kind=b"ship")).lane == "slow"


def test_with_an_app_expiry_without_due_also_counts_from_the_timestamp() -> None:
    app = hw.App("memory://")

    @app.job(expires="1m")
    async def ship(job: hw.Job, n: int) -> None: ...

    reader = JobReader(kind="ship", app=app)
    assert reader.job(message()).expires_at == 1_700_000_060_123
    job = reader.job(message(headway_expires=b"10s"))
    assert (job.due_at, job.expires_at) == (None, 1_700_000_010_123)


def test_traceparent_is_kept_beside_the_job() -> None:
    assert message(traceparent=b"00-ab-cd-01").trace == "00-ab-cd-01"
    assert message().trace is None
    assert read_json(message(traceparent=b"\xff")) == {"n": 1}
