from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

import headway as hw
from headway.runtime.timing import Timing
from headway.systems.webhooks import LIMIT_S, Reporter, Resolve, is_public

NAMES = {"where": "calls.reporting_keys", "what": "reporting_webhook_url"}
KEY = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
NEW = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
BODY = b'{"type":"lead.finished","data":{"id":"1"}}'
OK = b"HTTP/1.1 204 No Content\r\n\r\n"
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """A caller's webhook on a real socket; it keeps what it receives, byte by byte."""

    def __init__(self) -> None:
        self.got: list[tuple[str, dict[str, str], bytes]] = []
        self.reply: bytes = OK
        self.hangs = False
        self.port = 0
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/results"

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): text for name, text in (one.split(": ", 1) for one in lines)}
            body = await reader.readexactly(int(headers["content-length"]))
            self.got.append((line, headers, body))
            if self.hangs:
                await reader.read()
            writer.write(self.reply)
            await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    made = Receiver()
    server = await asyncio.start_server(made.take, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    async with server:
        yield made


@asynccontextmanager
async def reporter(
    *keys: str,
    private: bool = True,
    resolve: Resolve | None = None,
    timing: Timing | None = None,
) -> AsyncIterator[Reporter]:
    more = {} if resolve is None else {"resolve": resolve}
    made = Reporter(keys or (KEY,), **NAMES, private=private, timing=timing or Timing(), **more)
    try:
        yield made
    finally:
        await made.close()


def at(*addresses: str) -> Resolve:
    async def found(host: str, port: int) -> Sequence[str]:
        del host, port
        return addresses

    return found


async def test_report_is_signed_as_the_official_package_verifies_it(receiver: Receiver):
    async with reporter() as one:
        await one.report(receiver.url, "evt-1", BODY)
    ((line, headers, body),) = receiver.got
    assert line == "POST /results HTTP/1.1"
    assert headers["content-type"] == "application/json"
    assert headers["host"] == f"127.0.0.1:{receiver.port}"
    assert headers["webhook-id"] == "evt-1"
    assert Webhook(KEY).verify(body, headers) == json.loads(BODY)
    with pytest.raises(WebhookVerificationError):
        Webhook(NEW).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(KEY).verify(body.replace(b"1", b"2"), headers)


async def test_each_key_signs_so_that_receivers_can_rotate_theirs(receiver: Receiver):
    async with reporter(NEW, KEY) as one:
        await one.report(receiver.url, "evt-1", BODY)
    ((_, headers, body),) = receiver.got
    for key in (KEY, NEW):
        assert Webhook(key).verify(body, headers)


async def test_repeated_report_has_the_same_id_and_its_own_time(
    receiver: Receiver,
):
    class Later(Timing):
        at = 1_800_000_000_000

        def wall_at(self) -> int:
            self.at += 1_000
            return self.at

    receiver.reply = b"HTTP/1.1 500 Oh\r\ncontent-length: 0\r\n\r\n"
    async with reporter(timing=Later()) as one:
        for _ in range(2):
            with pytest.raises(hw.Retry, match="answered 500"):
                await one.report(receiver.url, "evt-1", BODY)
    first, second = (headers for _, headers, _ in receiver.got)
    assert first["webhook-id"] == second["webhook-id"]
    assert first["webhook-timestamp"] != second["webhook-timestamp"]
    assert first["webhook-signature"] != second["webhook-signature"]


@pytest.mark.parametrize("status", [300, 400, 401, 404, 408, 429, 500, 503])
async def test_webhook_that_refuses_is_retried(receiver: Receiver, status: int):
    receiver.reply = f"HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n".encode()
    async with reporter() as one:
        with pytest.raises(hw.Retry, match=f"answered {status}"):
            await one.report(receiver.url, "evt-1", BODY)


async def test_webhook_that_wants_no_more_is_left_alone(receiver: Receiver):
    receiver.reply = b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\n\r\n"
    async with reporter() as one:
        with pytest.raises(hw.Dead, match="410"):
            await one.report(receiver.url, "evt-1", BODY)


async def test_no_redirect_is_followed(receiver: Receiver):
    other = f"Location: http://127.0.0.1:{receiver.port}/inside\r\n"
    for status in (301, 302, 307, 308):
        receiver.reply = f"HTTP/1.1 {status} Go\r\n{other}content-length: 0\r\n\r\n".encode()
        async with reporter() as one:
            with pytest.raises(hw.Retry, match=f"answered {status}"):
                await one.report(receiver.url, "evt-1", BODY)
    assert {line for line, *_ in receiver.got} == {"POST /results HTTP/1.1"}
    assert len(receiver.got) == 4


async def test_endless_reply_is_not_read(receiver: Receiver):
    receiver.reply = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n" + b"x" * 100_000
    async with reporter() as one, asyncio.timeout(120):
        await one.report(receiver.url, "evt-1", BODY)


async def test_hanging_webhook_is_given_up_after_a_while(receiver: Receiver):
    class Soon(Timing):
        limits: list[float | None]

        def __init__(self) -> None:
            self.limits = []

        def limit(self, seconds: float | None) -> asyncio.Timeout:
            self.limits.append(seconds)
            return asyncio.timeout(0.2)

    receiver.hangs = True
    timing = Soon()
    async with reporter(timing=timing) as one:
        with pytest.raises(hw.Retry, match="does not answer"):
            await one.report(receiver.url, "evt-1", BODY)
    assert timing.limits == [LIMIT_S]


async def test_missing_or_nonsensical_webhook_is_retried(receiver: Receiver):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with reporter() as one:
        with pytest.raises(hw.Retry, match="does not answer: ConnectError"):
            await one.report(f"http://127.0.0.1:{port}/", "evt-1", BODY)
        receiver.reply = b"no HTTP at all\r\n\r\n"
        with pytest.raises(hw.Retry, match="does not speak HTTP"):
            await one.report(receiver.url, "evt-1", BODY)


# ------------------------------------------------------------------------ private addresses


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0"],  # noqa: S104  (to be refused)
)
async def test_nothing_is_sent_to_this_machine_however_it_is_written(receiver: Receiver, host: str):
    async with reporter(private=False) as one:
        with pytest.raises(hw.Dead, match="not reported to private addresses"):
            await one.report(f"http://{host}:{receiver.port}/", "evt-1", BODY)
    assert receiver.connections == 0


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.1",
        "172.16.5.4",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.0.2.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "240.0.0.1",
        "::",
        "fe80::1",
        "2606:4700::1111%eth0",
        "fc00::1",
        "fec0::1",
        "ff02::1",
        "2001:db8::1",
        "::ffff:10.0.0.1",
        "64:ff9b::a00:1",
        "2002:a00:1::",
        "2001:0:4136:e378:8000:63bf:f5ff:fffe",
        "0.1.2.3",
        "127.1.2.3",
        "168.63.129.16",
        "192.0.0.8",
        "192.0.0.9",
        "192.0.0.192",
        "192.88.99.1",
        "198.51.100.1",
        "203.0.113.1",
        "100.100.100.200",
        "::1",
        "::93.184.216.34",
        "fd00:ec2::254",
        "3fff::1",
        "5f00::1",
        "2001:2::1",
        "2001:20::1",
        "2002:5db8:d822::1",
        "64:ff9b:1::5db8:d822",
        "::ffff:168.63.129.16",
        "::ffff:192.0.0.192",
        "64:ff9b::192.88.99.1",
        "64:ff9b::a83f:8110",
        "nonsense",
    ],
)
def test_addresses_that_are_not_on_the_open_internet(address: str):
    assert not is_public(address)


@pytest.mark.parametrize(
    "address",
    [
        "93.184.216.34",
        "168.63.129.17",
        "192.0.1.1",
        "2606:4700::1",
        "2001:4860:4860::8888",
        "3ffe::1",
        "::ffff:93.184.216.34",
        "64:ff9b::5db8:d822",
    ],
)
def test_addresses_that_are_on_the_open_internet(address: str):
    assert is_public(address)


async def test_host_with_any_private_address_is_refused(receiver: Receiver):
    async with reporter(private=False, resolve=at("93.184.216.34", "10.0.0.1")) as one:
        with pytest.raises(hw.Dead, match=r"hooks\.example is at 10\.0\.0\.1"):
            await one.report(f"http://hooks.example:{receiver.port}/", "evt-1", BODY)


async def test_connection_goes_to_the_checked_address(receiver: Receiver):
    """The name resolves to a public address at first, and to a private one the next time."""
    asked: list[str] = []

    async def turning(host: str, port: int) -> Sequence[str]:
        del port
        asked.append(host)
        # A second lookup would find another address.
        return ["127.0.0.1"] if len(asked) == 1 else ["127.0.0.2"]

    async with reporter(resolve=turning) as one:
        await one.report(f"http://hooks.example:{receiver.port}/r", "evt-1", BODY)
    assert asked == ["hooks.example"]
    ((_, headers, _),) = receiver.got
    assert headers["host"] == f"hooks.example:{receiver.port}"


async def test_each_report_resolves_the_address_again(receiver: Receiver):
    receiver.reply = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"
    asked: list[str] = []

    async def counted(host: str, port: int) -> Sequence[str]:
        del port
        asked.append(host)
        return ["127.0.0.1"]

    async with reporter(resolve=counted) as one:
        for _ in range(2):
            await one.report(f"http://hooks.example:{receiver.port}/r", "evt-1", BODY)
    assert len(asked) == receiver.connections == 2


async def test_next_address_is_tried_if_one_does_not_answer(receiver: Receiver):
    async with reporter(resolve=at("127.0.0.2", "127.0.0.1")) as one:
        await one.report(f"http://hooks.example:{receiver.port}/r", "evt-1", BODY)
    assert len(receiver.got) == 1


async def test_host_without_an_address_is_retried():
    async def nowhere(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(host, port)

    async with reporter(resolve=nowhere) as one:
        with pytest.raises(hw.Retry, match="does not answer: ConnectError"):
            await one.report("http://hooks.example/", "evt-1", BODY)


# ----------------------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("ftp://x/", "is not an https"),
        ("file:///etc/passwd", "is not an https"),
        ("hooks.example/x", "is not an https"),
        ("http:///x", "has no host"),
        ("http://user:secret@hooks.example/", "has a user"),
        ("http://hooks.example/#x", "has a user or a fragment"),
        ("http://hooks.example:99999/", "is not a URL"),
        ("http://[::1/", "is not a URL"),
        ("http://hooks.example/a b", "contains invalid characters"),
        ("http://hooks.example/a\r\nx: y", "contains invalid characters"),
        (f"http://hooks.example/{'a' * 3000}", "longer than 2048"),
    ],
)
async def test_address_to_which_nothing_can_be_reported_is_refused(url: str, fault: str):
    async with reporter() as one:
        with pytest.raises(hw.InvalidValue, match=fault) as raised:
            one.check(url)
        assert "secret" not in str(raised.value)
        with pytest.raises(hw.Dead):
            await one.report(url, "evt-1", BODY)


async def test_nothing_can_be_reported_without_keys():
    made = Reporter((), **NAMES, private=True, timing=Timing())
    with pytest.raises(hw.InvalidValue, match="has no keys to sign reports with"):
        made.check("https://hooks.example/")
    with pytest.raises(hw.Dead, match="has no keys to sign reports with"):
        await made.report("https://hooks.example/", "evt-1", BODY)
    await made.close()


@pytest.mark.parametrize("key", ["whsec_", "whsec_c2hvcnQ=", "hunter2!", "whsec_MfKQ9r8GKYqrTwjUP"])
def test_key_that_cannot_sign_is_refused_and_not_shown(key: str):
    with pytest.raises(hw.InvalidValue, match="reporting_keys: key 2") as raised:
        Reporter((KEY, key), **NAMES, private=False, timing=Timing())
    assert "hunter2" not in str(raised.value)
