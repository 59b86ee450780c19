"""Push: APNs over HTTP/2, by aioapns.

The client itself retries after a lost connection, although the first request may have been
delivered. So only its pool and its connections are used here, and each request is sent once.

Source: Apple, "Sending notification requests to APNs", "Handling notification responses from APNs".
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Self, cast
from uuid import NAMESPACE_URL, uuid5

import msgspec
from aioapns.common import NotificationRequest, NotificationResult, PushType
from aioapns.connection import APNsKeyConnectionPool, APNsTLSClientProtocol
from aioapns.exceptions import ConnectionClosed
from aioapns.exceptions import ConnectionError as NotConnected
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from h2.connection import ConnectionInputs, H2Connection, H2ConnectionStateMachine
from h2.errors import ErrorCodes
from h2.events import ConnectionTerminated, DataReceived, Event, StreamReset
from h2.exceptions import ProtocolError
from pydantic import Field, model_validator

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import Table
from headway.runtime.timing import Timing
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Message,
    Port,
    Refused,
    SendResult,
    Timeout,
    Unavailable,
    Unsure,
    tls_context,
)
from headway.systems.pre_send_check import check_before_send

APNS_HOST = "api.push.apple.com"
APNS_SANDBOX_HOST = "api.development.push.apple.com"


class PushTable(Table):
    """`[notifications.senders.push]`: APNs, by a token key.

    Attributes:
        key: private key as PEM; alternatively, `key_file` is a file that contains it.
        topic: the app's bundle id.
        sandbox: whether apps are development builds.
        host: host of the server, if it is not Apple's.
        ca_file: certificates to trust instead of the system's.
        timeout: how long Apple may take to reply, ms.
    """

    key: Annotated[str | None, Field(repr=False)] = None
    key_file: Path | None = None
    key_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{10}$")]
    team_id: Annotated[str, Field(pattern=r"^[A-Za-z0-9]{10}$")]
    topic: Annotated[str, Field(pattern=r"^[A-Za-z0-9.-]{1,255}$")]
    sandbox: bool = False
    host: Annotated[str | None, Field(pattern=r"^[A-Za-z0-9.-]+$")] = None
    port: Port = 443
    ca_file: Path | None = None
    timeout: Timeout = 10_000

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if (self.key is None) == (self.key_file is None):
            message = "set key_file, or key with the PEM itself"
            raise ValueError(message)
        return self

    def read_key(self) -> str:
        """Read the private key, as PEM.

        Raises:
            InvalidValue: there is no such file, or it is not a private key of P-256.
        """
        where, text = "notifications.senders.push", self.key or ""
        if self.key_file is not None:
            where = f"{where}.key_file: {self.key_file}"
            try:
                text = self.key_file.read_text("utf-8")
            except (OSError, UnicodeDecodeError) as error:
                message = f"{where} cannot be read: {type(error).__name__}"
                raise InvalidValue(message, hint="use the AuthKey_….p8 from Apple") from None
        try:
            key = load_pem_private_key(text.encode(), None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            key = None
        if isinstance(key, EllipticCurvePrivateKey) and isinstance(key.curve, SECP256R1):
            return text
        message = f"{where} is not a private key of P-256 in PEM"
        raise InvalidValue(message, hint="use the AuthKey_….p8 from Apple unchanged")

    @property
    def server(self) -> str:
        """Host to connect to."""
        return self.host or (APNS_SANDBOX_HOST if self.sandbox else APNS_HOST)


PRIORITY: Mapping[str, int] = {"high": 10, "normal": 5, "low": 1}
"""10 is sent at once, 5 depending on the power of the device, 1 without waking the device."""
MAX_PAYLOAD = 4_096
"""Maximum bytes of a payload."""
IDLE_S = 60
"""How long a connection stays open without a request."""

CREDENTIALS = frozenset(
    {"ExpiredProviderToken", "InvalidProviderToken", "MissingProviderToken", "BadCertificate"}
    | {"BadCertificateEnvironment", "Forbidden"}
)
"""Reasons that concern the key, not the message: all messages wait until it is corrected."""

ONE_DEVICE = "TooManyRequests"
"""The reason of a 429 that concerns one device only, not the whole channel."""

_TOKEN = re.compile(r"[0-9a-fA-F]{2,400}", re.ASCII)


_Answer = asyncio.Future[NotificationResult]


class NotProcessed(Exception):
    """The server reports that it has not processed this request, and will not."""


class _Answers(dict[str, _Answer]):
    """The awaited answers; hides those whose wait has timed out from the client."""

    def pop(self, key: str, default: _Answer | None = None) -> _Answer | None:  # pyright: ignore[reportIncompatibleMethodOverride]  (the only form that is called)
        found = super().pop(key, default)
        return None if found is None or found.done() else found

    def values(self) -> list[_Answer]:  # pyright: ignore[reportIncompatibleMethodOverride]  (it is only looped over)
        return [one for one in super().values() if not one.done()]


class _OpenAfterGoaway(H2ConnectionStateMachine):
    """Keeps a connection open after a GOAWAY, for answers to the requests that it covers."""

    def process_input(self, input_: ConnectionInputs) -> list[Event]:
        return [] if input_ is ConnectionInputs.RECV_GOAWAY else super().process_input(input_)


class _Streams(H2Connection):
    """A connection's streams: does what the client omits when the server resets or sends data."""

    def __init__(self, on_reset: Callable[[StreamReset], None]) -> None:
        super().__init__()
        self.state_machine = _OpenAfterGoaway()
        self._on_reset = on_reset

    def receive_data(self, data: bytes) -> list[Event]:  # pyright: ignore[reportIncompatibleMethodOverride]  (asyncio gives bytes)
        events = super().receive_data(data)
        for one in events:
            if isinstance(one, StreamReset):
                self._on_reset(one)
            elif isinstance(one, DataReceived):
                # Otherwise the server could not send any reason after the first 64 kB of them.
                self.acknowledge_received_data(one.flow_controlled_length, one.stream_id)
        return events


class _Connection(APNsTLSClientProtocol):
    """A connection on which each request ends, whatever the server does."""

    INACTIVITY_TIME = IDLE_S
    is_leaving = False
    """Whether the server has announced that it will close the connection."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.conn = _Streams(self.on_stream_reset)
        self.requests = _Answers()
        super().connection_made(transport)

    def on_data_received(self, raw_data: bytes, stream_id: int) -> None:
        # An error would end the connection; without a reason, the status decides.
        with suppress(ValueError, AttributeError):
            super().on_data_received(raw_data, stream_id)

    def on_stream_ended(self, stream_id: int) -> None:
        super().on_stream_ended(stream_id)
        # If a refusal has no body, the client waits forever for it.
        if (found := self._taken(stream_id)) is not None:
            name, answer = found
            answer.set_result(NotificationResult(name, self.request_statuses.pop(name, "")))
        self._close_if_done()

    def on_stream_reset(self, event: StreamReset) -> None:
        self.free_channels.release()
        if (found := self._taken(event.stream_id)) is not None:
            refused = event.error_code == ErrorCodes.REFUSED_STREAM
            found[1].set_exception(NotProcessed() if refused else ConnectionClosed())
        self._close_if_done()

    def on_connection_terminated(self, event: ConnectionTerminated) -> None:
        last = event.last_stream_id
        later = [one for one in self.request_streams if last is not None and one > last]
        for stream_id in later:
            if (found := self._taken(stream_id)) is not None:
                found[1].set_exception(NotProcessed())
        if event.error_code != ErrorCodes.NO_ERROR:
            super().on_connection_terminated(event)
            return
        # The server still answers the earlier requests; others need another connection.
        self.is_leaving = True
        if self.on_connection_lost is not None:
            self.on_connection_lost(self)
            self.on_connection_lost = None
        self.free_channels.destroy(NotProcessed())
        self._close_if_done()

    def _close_if_done(self) -> None:
        if self.is_leaving and not self.requests.values():
            self.close()

    def _taken(self, stream_id: int) -> tuple[str, _Answer] | None:
        name = self.request_streams.pop(stream_id, None)
        answer = None if name is None else self.requests.pop(name)
        return None if name is None or answer is None else (name, answer)


class Apns:
    """Sends to Apple devices over one connection."""

    def __init__(self, settings: PushTable, timing: Timing) -> None:
        """Read the key; nothing is connected.

        Raises:
            InvalidValue: the key or the certificates cannot be used.
        """
        self._settings = settings
        self._timing = timing
        self._key = settings.read_key()
        self._context = tls_context("notifications.senders.push.ca_file", settings.ca_file)
        self._context.set_alpn_protocols(["h2"])
        self._pool: APNsKeyConnectionPool | None = None

    async def send(self, message: Message) -> SendResult:
        if not _TOKEN.fullmatch(message.to):
            return Refused("the device token is not a hexadecimal number")
        alert = {"body": message.text} | ({"title": message.title} if message.title else {})
        payload = {**message.data, "aps": {"alert": alert, "sound": "default"}}
        size = len(msgspec.json.encode(payload))
        if size > MAX_PAYLOAD:
            return Refused(f"the payload has {size} bytes; Apple accepts {MAX_PAYLOAD}")
        seconds_left = None
        if message.expires_at is not None:
            seconds_left = (message.expires_at - self._timing.wall_at()) // 1000
            if seconds_left <= 0:
                return Refused("it has expired")
        request = NotificationRequest(
            device_token=message.to,
            message=payload,
            # One per device: the client matches answers by it.
            notification_id=str(uuid5(NAMESPACE_URL, f"headway:{message.id}:{message.to}")),
            time_to_live=seconds_left,
            priority=PRIORITY[message.priority],
            push_type=PushType.ALERT,
        )
        return await self._exchange(request, size)

    async def close(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    async def _exchange(self, request: NotificationRequest, size: int) -> SendResult:
        connection: APNsTLSClientProtocol | None = None
        outcome: SendResult
        try:
            async with self._timing.limit(self._settings.timeout / 1000):
                connection = await self._connection(size)
                outcome = _read(await connection.send_notification(request))
        except NotConnected:
            outcome = Unavailable("APNs cannot be reached")
        except NotProcessed:
            outcome = Unavailable("APNs ended the connection before it processed the request")
        except ProtocolError as error:
            # Raised before a byte of the request is written; the stream would stay half-open.
            if connection is not None:
                connection.close()
            outcome = Unavailable(f"the connection to APNs is exhausted: {type(error).__name__}")
        except ConnectionClosed:
            outcome = Unsure("APNs ended the connection without an answer")
        except TimeoutError:
            if connection is None:
                outcome = Unavailable("APNs did not accept a connection in time")
            else:
                outcome = Unsure("APNs did not answer in time")
        finally:
            if connection is not None:
                connection.requests.pop(request.notification_id, None)
        return outcome

    async def _connection(self, size: int) -> APNsTLSClientProtocol:
        """Return the connection once it has room for a request of this many bytes."""
        if self._pool is None:
            self._pool = self._make_pool()
        while True:
            found = cast("APNsTLSClientProtocol", await self._pool.acquire())
            transport = found.transport
            if transport is None or transport.is_closing():
                # Writes to it would be lost, but the pool has not noticed yet that it is closed.
                found.on_connection_lost = None
                self._pool.connections.remove(found)
            elif found.conn.outbound_flow_control_window < size:
                await self._timing.pause(0.01)
            elif not await check_before_send():
                return found

    def _make_pool(self) -> APNsKeyConnectionPool:
        settings = self._settings
        # Its constructor needs the running loop.
        pool = APNsKeyConnectionPool(
            key=self._key,
            key_id=settings.key_id,
            team_id=settings.team_id,
            topic=settings.topic,
            max_connections=1,
            ssl_context=self._context,
        )
        pool.protocol_class = type(
            "Connection",
            (_Connection,),
            {"APNS_SERVER": settings.server, "APNS_PORT": settings.port},
        )
        return pool


def _read(result: NotificationResult) -> SendResult:
    status = int(result.status) if result.status.isdecimal() else 0
    reason = f"APNs answered {result.status} {result.description or ''}".rstrip()
    if status == 200:
        return Accepted(result.notification_id)
    if status == 410:
        return Refused(reason, gone=True)
    if status == 429 and result.description != ONE_DEVICE:
        return Limited(reason, None)
    if status in {403, 429} or status >= 500 or result.description in CREDENTIALS:
        return Unavailable(reason)
    if 400 <= status < 500:
        return Refused(reason)
    return Unsure(reason)
