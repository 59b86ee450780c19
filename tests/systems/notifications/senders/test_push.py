from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from h2.errors import ErrorCodes
from hyperframe.frame import GoAwayFrame

from headway.core.errors import InvalidValue
from headway.runtime.timing import REAL, Timing
from headway.systems.notifications.push import Apns
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Refused,
    Unavailable,
    Unsure,
)
from tests.systems.notifications.senders.apns_server import (
    Act,
    ApnsServer,
    Push,
    answers,
    apns,
    cuts,
    hangs,
    resets,
    says_goodbye,
)
from tests.systems.notifications.senders.messages import message, read_senders

TOKEN = "ab12" * 16
KEYS = {"key_id": "ABC1234567", "team_id": "TEAM123456", "topic": "org.example.shop"}


@cache
def private_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


@cache
def pem() -> str:
    raw = private_key().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return raw.decode()


def made(server: ApnsServer, timing: Timing = REAL, **more: Any) -> Apns:
    told = {"key": pem(), **KEYS, "host": "localhost", "port": server.port}
    ca = {"ca_file": str(server.certificate)}
    push = read_senders({"push": {**told, **ca, "timeout": "2m", **more}}).push
    assert push is not None
    return Apns(push, timing)


Use = Callable[..., Any]


@asynccontextmanager
async def sender(server: ApnsServer, timing: Timing = REAL, **more: Any) -> AsyncIterator[Apns]:
    one = made(server, timing, **more)
    try:
        yield one
    finally:
        await one.close()


class Soon(Timing):
    """A timeout that expires as soon as the server has the request."""

    def __init__(self, server: ApnsServer) -> None:
        self.server = server

    def limit(self, seconds: float | None) -> asyncio.Timeout:
        limit = asyncio.timeout(None)
        loop = asyncio.get_running_loop()

        def look() -> None:
            if self.server.got:
                limit.reschedule(loop.time())
            else:
                loop.call_later(0.005, look)

        loop.call_soon(look)
        return limit


async def test_push_is_sent_as_apple_requires(tmp_path: Path):
    class At(Timing):
        def wall_at(self) -> int:
            return REAL.wall_at() // 1000 * 1000

    async with apns(tmp_path) as server, sender(server, At()) as one:
        outcome = await one.send(
            message(TOKEN, priority="high", expires_at=REAL.wall_at() + 3_600_000)
        )
    (push,) = server.got
    headers = push.headers
    assert outcome == Accepted(headers["apns-id"])
    assert headers[":path"] == f"/3/device/{TOKEN}"
    assert (headers["apns-topic"], headers["apns-push-type"]) == (KEYS["topic"], "alert")
    assert headers["apns-priority"] == "10"
    assert 3_500 < int(headers["apns-expiration"]) - REAL.wall_at() // 1000 < 3_700
    assert push.json == {
        "parcel": 7,
        "aps": {"alert": {"title": "Your parcel", "body": "It comes today."}, "sound": "default"},
    }
    token = headers["authorization"].removeprefix("bearer ")
    assert jwt.get_unverified_header(token)["kid"] == KEYS["key_id"]
    claims = jwt.decode(token, private_key().public_key(), algorithms=["ES256"])
    assert claims["iss"] == KEYS["team_id"]


@pytest.mark.parametrize(("priority", "header"), [("normal", "5"), ("low", "1")])
async def test_priorities_become_those_of_apple(tmp_path: Path, priority: str, header: str):
    async with apns(tmp_path) as server, sender(server) as one:
        await one.send(message(TOKEN, priority=priority))
    assert server.got[0].headers["apns-priority"] == header


async def test_one_connection_sends_all_pushes(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        for _ in range(3):
            assert isinstance(await one.send(message(TOKEN)), Accepted)
        await asyncio.gather(*(one.send(message(f"{n:04x}")) for n in range(40)))
    assert server.connections == 1
    assert len(server.got) == 43


async def test_devices_of_one_notification_are_distinguished(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        sent = [one.send(message(f"{n:04x}")) for n in range(9)]
        outcomes = await asyncio.gather(*sent)
    assert len({one.provider_id for one in outcomes}) == 9  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("act", "kind", "reason"),
    [
        (answers(410, "Unregistered"), Refused, "410 Unregistered"),
        (answers(400, "BadDeviceToken"), Refused, "400 BadDeviceToken"),
        (answers(413, "PayloadTooLarge"), Refused, "413 PayloadTooLarge"),
        (answers(429, "TooManyRequests"), Unavailable, "429 TooManyRequests"),
        (answers(429, "TooManyProviderTokenUpdates"), Limited, "TooManyProviderTokenUpdates"),
        (answers(429), Limited, "429"),
        (answers(403, "InvalidProviderToken"), Unavailable, "403 InvalidProviderToken"),
        (answers(500, "InternalServerError"), Unavailable, "500 InternalServerError"),
        (answers(503, "ServiceUnavailable"), Unavailable, "503 ServiceUnavailable"),
        (answers(503), Unavailable, "503"),
        (says_goodbye, Unavailable, "before it processed"),
        (resets(ErrorCodes.REFUSED_STREAM), Unavailable, "before it processed"),
        (resets(ErrorCodes.INTERNAL_ERROR), Unsure, "without an answer"),
        (cuts, Unsure, "without an answer"),
    ],
)
async def test_reply_of_apple_is_the_outcome(tmp_path: Path, act: Act, kind: type, reason: str):
    async with apns(tmp_path, act, answers(200)) as server, sender(server) as one:
        outcome = await one.send(message(TOKEN))
        assert isinstance(outcome, kind)
        assert reason in outcome.reason  # pyright: ignore[reportAttributeAccessIssue]
        assert getattr(outcome, "gone", False) is (reason == "410 Unregistered")
        # It was queried once, and the next push is sent.
        assert len(server.got) == 1
        assert isinstance(await one.send(message(TOKEN)), Accepted)


async def test_unanswered_request_is_uncertain_and_the_next_one_is_sent(tmp_path: Path):
    async with apns(tmp_path, hangs, answers(200)) as server, sender(server, Soon(server)) as one:
        outcome = await one.send(message(TOKEN))
        assert outcome == Unsure("APNs did not answer in time")
        one._timing = REAL
        assert isinstance(await one.send(message(TOKEN)), Accepted)
    assert server.connections == 1


async def test_announced_end_of_the_connection_loses_no_answer(tmp_path: Path):
    late: list[Callable[[], None]] = []

    def leaves(served: Any, stream: int, push: Push) -> None:
        late.append(lambda: (answers(200)(served, stream, push), served.flush())[1])
        if len(late) == 2:
            # By hand, because a connection of h2 that has announced its end sends nothing else.
            end = GoAwayFrame(0, last_stream_id=stream, error_code=ErrorCodes.NO_ERROR)
            served.transport.write(end.serialize())

    acts = (leaves, leaves, answers(200))
    async with apns(tmp_path, *acts) as server, sender(server) as one:
        earlier = [asyncio.create_task(one.send(message(f"{n:04x}"))) for n in range(2)]
        while len(late) < 2 or one._pool is None or one._pool.connections:
            await REAL.pause(0)
        assert isinstance(await one.send(message(TOKEN)), Accepted)
        assert server.connections == 2
        for reply in late:
            reply()
        assert [type(each) for each in await asyncio.gather(*earlier)] == [Accepted, Accepted]
        while not server.open[0].transport.is_closing():
            await REAL.pause(0)


async def test_refusals_without_number_have_reasons(tmp_path: Path):
    refusal = Refused("APNs answered 410 Unregistered", gone=True)
    async with apns(tmp_path, answers(410, "Unregistered")) as server, sender(server) as one:
        for _ in range(70):
            sent = [one.send(message(f"{n:04x}")) for n in range(40)]
            assert await asyncio.gather(*sent) == [refusal] * 40
    assert server.connections == 1


@pytest.mark.parametrize("body", [b"<html>", b'"\xff"', b"[]"])
async def test_unreadable_reason_leaves_the_status_and_the_connection(tmp_path: Path, body: bytes):
    def confuses(served: Any, stream: int, push: Push) -> None:
        headers = [(":status", "400"), ("apns-id", push.headers["apns-id"])]
        served.conn.send_headers(stream, headers)
        served.conn.send_data(stream, body, end_stream=True)

    async with apns(tmp_path, confuses, answers(200)) as server, sender(server) as one:
        assert await one.send(message(TOKEN)) == Refused("APNs answered 400")
        assert isinstance(await one.send(message(TOKEN)), Accepted)
    assert server.connections == 1


async def test_late_reply_affects_no_other_request(tmp_path: Path):
    late: list[Callable[[], None]] = []

    def keeps(served: Any, stream: int, push: Any) -> None:
        late.append(lambda: (answers(200)(served, stream, push), served.flush())[1])

    async with apns(tmp_path, keeps, answers(200)) as server, sender(server, Soon(server)) as one:
        assert isinstance(await one.send(message(TOKEN)), Unsure)
        one._timing = REAL
        late[0]()
        assert isinstance(await one.send(message(TOKEN)), Accepted)
    assert server.connections == 1


async def test_frames_for_an_abandoned_request_are_ignored(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        await one.send(message(TOKEN))
        assert one._pool is not None
        (connection,) = one._pool.connections
        given_up: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        given_up.cancel()
        for reply in (
            lambda: connection.on_response_received({b":status": b"200", b"apns-id": b"x"}),
            lambda: connection.connection_lost(None),
        ):
            connection.requests["x"] = given_up
            reply()


async def test_unreachable_server_has_been_sent_nothing(tmp_path: Path):
    async with apns(tmp_path) as server:
        pass
    async with sender(server) as one:
        assert await one.send(message(TOKEN)) == Unavailable("APNs cannot be reached")


async def test_server_with_another_certificate_is_sent_nothing(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server, ca_file=None) as one:
        assert await one.send(message(TOKEN)) == Unavailable("APNs cannot be reached")
    assert server.got == []


async def test_connection_closed_while_idle_is_replaced(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        await one.send(message(TOKEN))
        server.open[0].transport.abort()
        assert one._pool is not None
        while one._pool.connections and not one._pool.connections[0].transport.is_closing():  # type: ignore[union-attr]
            await REAL.pause(0)
        assert isinstance(await one.send(message(TOKEN)), Accepted)
    assert server.connections == 2


async def test_burst_waits_for_the_windows_of_the_connection(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        server.read_after_s = 0.05
        text = "x" * 3_000
        sent = [one.send(message(f"{n:04x}", text=text)) for n in range(60)]
        outcomes = await asyncio.gather(*sent)
    assert {type(one) for one in outcomes} == {Accepted}
    assert server.connections == 1


@pytest.mark.parametrize("token", ["", "xyz", "ab/../cd", "ab\r\nx: y", "ab cd"])
async def test_invalid_device_token_is_refused_unsent(tmp_path: Path, token: str):
    async with apns(tmp_path) as server, sender(server) as one:
        outcome = await one.send(message(token))
    assert outcome == Refused("the device token is not a hexadecimal number")
    assert server.connections == 0


async def test_push_that_apple_would_refuse_is_refused_unsent(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        large = await one.send(message(TOKEN, text="x" * 4_096))
        old = await one.send(message(TOKEN, expires_at=REAL.wall_at() - 1))
    assert isinstance(large, Refused)
    assert "4096" in large.reason
    assert old == Refused("it has expired")
    assert server.connections == 0


async def test_app_cannot_replace_the_alert_by_its_data(tmp_path: Path):
    async with apns(tmp_path) as server, sender(server) as one:
        await one.send(message(TOKEN, data={"aps": {"alert": "other"}}))
    assert server.got[0].json["aps"]["alert"]["body"] == "It comes today."


@pytest.mark.parametrize("text", ["hunter2-hunter2", "-----BEGIN PRIVATE KEY-----\nhunter2\n"])
def test_invalid_key_is_refused_and_not_shown(tmp_path: Path, text: str):
    server = ApnsServer(tmp_path / "none", port=1)
    with pytest.raises(InvalidValue, match="private key of P-256") as raised:
        made(server, key=text)
    assert "hunter2" not in str(raised.value)
    file = tmp_path / "key.p8"
    file.write_text(text)
    with pytest.raises(InvalidValue, match=r"key\.p8 is not a private key"):
        made(server, key=None, key_file=str(file))
    with pytest.raises(InvalidValue, match=r"gone\.p8 cannot be read: FileNotFoundError"):
        made(server, key=None, key_file=str(tmp_path / "gone.p8"))


async def test_neither_key_nor_text_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    async with apns(tmp_path, answers(400, "BadTopic")) as server, sender(server) as one:
        await one.send(message(TOKEN))
        assert "PRIVATE" not in repr(one._settings)
    told = server.got[0].headers["authorization"]
    assert told.removeprefix("bearer ") not in caplog.text
    assert "It comes today" not in caplog.text
