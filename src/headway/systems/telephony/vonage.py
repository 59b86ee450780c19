"""Vonage: calls through its official client, and the reading of its refusals."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

import httpx
import msgspec
from anyio import CapacityLimiter, from_thread, to_thread
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import AfterValidator, Field
from requests import PreparedRequest, Response
from requests.adapters import BaseAdapter
from vonage_http_client.auth import Auth  # pyright: ignore[reportMissingTypeStubs]  (typed, but without py.typed)
from vonage_http_client.http_client import HttpClient  # pyright: ignore[reportMissingTypeStubs]  (as above)
from vonage_utils.errors import VonageError  # pyright: ignore[reportMissingTypeStubs]  (as above)
from vonage_voice import Voice as Client  # pyright: ignore[reportMissingTypeStubs]  (as above)
from vonage_voice.models import (  # pyright: ignore[reportMissingTypeStubs]  (as above)
    CallInfo,
    CreateCallRequest,
    Dtmf,
    Input,
    ListCallsFilter,
    Talk,
)
from vonage_voice.models.ncco import NccoAction  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.settings_table import BaseUrl, Span, Table, read_table
from headway.runtime.timing import REAL, Timing
from headway.server.hooks.request import HookRequest
from headway.server.hooks.signals import event_id
from headway.systems.telephony.http import AT_ONCE, ProviderHttp, Refusal, client_result
from headway.systems.telephony.voice import (
    SKEW_MS,
    Ask,
    CallEvent,
    CallOrder,
    CallStatus,
    Dialled,
    Fetch,
    NotFound,
    Say,
    Sought,
    Spoken,
    known_status,
    only_match,
    whole_seconds,
)
from headway.systems.telephony.vonage_webhooks import (
    CALLS,
    NAME,
    check_vonage,
    read_pressed,
    read_status,
)


def _private_key(written: str) -> str:
    """Return the key in PKCS #8, as the official client requires, from PEM or a file.

    Raises:
        ValueError: it is not an RSA private key in PEM without a password.
    """
    if not written.lstrip().startswith("-----BEGIN"):
        try:
            written = Path(written).read_text(encoding="ascii")
        except (OSError, ValueError):
            message = "is neither a key in PEM nor a file that can be read"
            raise ValueError(message) from None
    try:
        key = load_pem_private_key(written.strip().encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        message = "is not an RSA private key without a password"
        raise ValueError(message)  # noqa: TRY004  (pydantic expects it)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class VonageSettings(Table):
    """`[telephony.vonage]`.

    Attributes:
        private_key: private key of the application, in PEM; or the path of its file.
        signature_secret: secret that signs the account's webhooks; without it all are refused.
        base_url: URL of the API.
        timeout: maximum time until a reply is complete, ms.
    """

    application_id: Annotated[str, Field(pattern=r"^[0-9a-fA-F-]{32,36}$")]
    private_key: Annotated[str, AfterValidator(_private_key), Field(repr=False)]
    signature_secret: Annotated[str | None, Field(min_length=8, repr=False)] = None
    base_url: BaseUrl = "https://api.nexmo.com"
    timeout: Annotated[Span, Field(ge=100, le=120_000)] = 10_000


class ProviderHttpAdapter(BaseAdapter):
    """A transport adapter of `requests` over the http, for threads started by anyio."""

    def __init__(self, http: ProviderHttp, base_url: str) -> None:
        """Send through the http, to this URL instead of Vonage's own."""
        super().__init__()
        self._http = http
        self._base_url = base_url

    def send(
        self,
        request: PreparedRequest,
        stream: bool = False,
        timeout: object = None,
        verify: object = True,
        cert: object = None,
        proxies: Mapping[str, str] | None = None,
    ) -> Response:
        """Send one request, once.

        Returns:
            A reply of 2xx.

        Raises:
            TypeError: the body is a stream; nothing was sent.
        """
        del stream, timeout, verify, cert, proxies  # `ProviderHttp` has its own settings
        parts = urlsplit(request.url or "")
        body = request.body
        if not isinstance(body, str | bytes | None):
            message = "the body of a request is a stream"
            raise TypeError(message)
        asked = httpx.Request(
            request.method or "GET",
            f"{self._base_url}{parts.path}" + (f"?{parts.query}" if parts.query else ""),
            headers=_headers(request),
            content=body,
        )
        received = from_thread.run(self._http.send, asked)
        reply = Response()
        reply.status_code = received.status_code
        reply.headers.update(received.headers)
        reply.raw = BytesIO(received.content)
        reply.url, reply.request = request.url or "", request
        return reply

    def close(self) -> None:
        """Do nothing: `VonageApplication` closes `ProviderHttp`."""


class ProviderHttpClient(HttpClient):
    """The official client, without its retries.

    It would post a call up to ten more times if the connection ends without a reply, and each post
    may place a call. Each request gets a new instance, because an instance keeps the headers of its
    last request.
    """

    def __init__(self, auth: Auth, http: ProviderHttp, base_url: str) -> None:
        """Send through `ProviderHttp`."""
        super().__init__(auth)
        self._session.trust_env = False  # `ProviderHttp` handles proxies
        self._session.mount("https://", ProviderHttpAdapter(http, base_url))


def _headers(request: PreparedRequest) -> dict[str, str]:
    # `ProviderHttp` sets the headers of the connection and the encoding.
    travel = {"connection", "content-length", "accept-encoding", "transfer-encoding"}
    return {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in travel
    }


UNKNOWN = "404"
"""Code for an unknown call."""


class _Parameter(msgspec.Struct):
    name: str = ""
    reason: str = ""


class _Error(msgspec.Struct):
    type: str = ""
    title: str = ""
    error_title: str = ""
    detail: str = ""
    invalid_parameters: list[_Parameter] | None = None


def read_refusal(status: int, body: bytes) -> Refusal:
    """Read a reply of 4xx.

    Returns:
        The refusal. What it concerns depends on its status, then on its invalid parameters; a reply
        without an error from Vonage concerns the provider.
    """
    try:
        error = msgspec.json.decode(body, type=_Error)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        error = _Error()
    title = error.title or error.error_title
    if not title and not error.type:
        return Refusal(concerns="provider", text="the reply contains no Vonage error")
    wrong = error.invalid_parameters or []
    reasons = [f"{one.name} {one.reason}".strip() for one in wrong]
    text = ": ".join(part for part in (title or error.type, error.detail, *reasons) if part)
    return Refusal(concerns=_concerns(status, wrong), code=str(status), text=text)


def _concerns(status: int, wrong: list[_Parameter]) -> str:
    if status in {401, 402, 403, 404, 407}:
        return "provider"
    places = {one.name.partition(".")[0].partition("[")[0] for one in wrong}
    # A template sets its script, so another lead's call may be accepted.
    if "to" in places or places <= {"answer_url", "ncco"}:
        return "callee"
    return "sender" if "from" in places else "provider"


LONGEST_WAIT_S = 10
"""Vonage's maximum wait for keys."""


def actions(script: Say | Ask) -> list[NccoAction]:
    """Return a script as Vonage actions.

    A question is spoken twice, and keys can be pressed at any time. Silence is reported once, at
    the end.

    Raises:
        ValueError: the text is too long, or the script asks for too many keys.
    """
    if isinstance(script, Say):
        return [Talk.model_validate({"text": script.text})]
    asked = {"text": script.text, "bargeIn": True, "loop": 2}
    keys = Dtmf(timeOut=min(script.wait_s, LONGEST_WAIT_S), maxDigits=script.digits)
    input_ = Input(type=["dtmf"], dtmf=keys, eventUrl=[script.answer_url], eventMethod="POST")
    return [Talk.model_validate(asked), input_]


LONGEST_RING_S = 120
PAGE = 100
PAGES = 20
"""Maximum number of pages of calls listed in a look-up."""

T = TypeVar("T")


class VonageApplication:
    """A Vonage application: see `Voice`."""

    name = NAME

    def __init__(self, settings: VonageSettings, *, timing: Timing = REAL) -> None:
        """Create it without connecting."""
        self._settings = settings
        self._auth = Auth(application_id=settings.application_id, private_key=settings.private_key)
        self._http = ProviderHttp(
            self.name, read_refusal, timeout_ms=settings.timeout, timing=timing
        )
        self.answers_ms = self._http.answers_ms
        self._threads: CapacityLimiter | None = None

    async def dial(self, order: CallOrder) -> Dialled:
        try:
            asked = _request(order)
        except (ValueError, VonageError) as error:
            # Later lines may contain the input.
            first_line = str(error).partition("\n")[0]
            message = f"vonage cannot place this call: {first_line}"
            # The call itself is not valid, so neither the number nor Vonage is paused.
            raise ProviderRefused(message, concerns="callee") from error
        made = await self._ask(lambda client: client.create_call(asked))
        return Dialled(self.name, made.uuid)

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        try:
            if sought.call_id is not None:
                call = await self._fetch(sought.call_id)
                return NotFound.UNCLEAR if call is None else _event(call, sought)
            return only_match([_event(one, sought) for one in await self._list(sought)])
        except ProviderRefused as refused:
            message = f"vonage cannot be queried: {refused.message}"
            raise ProviderUnsure(message, hint=refused.hint) from refused

    async def hang_up(self, call_id: str) -> None:
        try:
            await self._ask(lambda client: client.hangup(call_id))
        except ProviderRefused:
            call = await self._fetch(call_id)
            if call is None or not _status(call).ended:
                raise

    def verify(self, request: HookRequest, now: int) -> None:
        check_vonage(request, self._settings.signature_secret, now)

    read_status = staticmethod(read_status)
    read_pressed = staticmethod(read_pressed)

    def speak(self, script: Say | Ask) -> Spoken:
        steps = [one.model_dump(by_alias=True, exclude_none=True) for one in actions(script)]
        return Spoken(msgspec.json.encode(steps), "application/json")

    async def close(self) -> None:
        await self._http.close()

    async def _fetch(self, call_id: str) -> CallInfo | None:
        try:
            return await self._ask(lambda client: client.get_call(call_id))
        except ProviderRefused as refused:
            if refused.provider_code == UNKNOWN:
                return None
            raise

    async def _list(self, sought: Sought) -> list[CallInfo]:
        since = datetime.fromtimestamp((sought.since - SKEW_MS) // 1000, UTC)
        found: list[CallInfo] = []
        for page in range(PAGES):
            wanted = ListCallsFilter(
                date_start=since.strftime("%Y-%m-%dT%H:%M:%SZ"),
                order="asc",
                page_size=PAGE,
                record_index=page * PAGE,
            )
            calls, following = await self._ask(lambda client, one=wanted: client.list_calls(one))
            found += [one for one in calls if _fits(one, sought)]
            if following is None or not calls:
                return found
        message = f"vonage lists more than {PAGE * PAGES} calls since then"
        raise ProviderUnsure(message)

    async def _ask(self, ask: Callable[[Client], T]) -> T:
        if self._threads is None:
            self._threads = CapacityLimiter(AT_ONCE)
        client = Client(ProviderHttpClient(self._auth, self._http, self._settings.base_url))
        return await client_result(NAME, to_thread.run_sync(ask, client, limiter=self._threads))


def _request(order: CallOrder) -> CreateCallRequest:
    fields: dict[str, object] = {
        "to": [{"number": _digits(order.to)}],
        "from_": {"number": _digits(order.from_)},
        "event_url": [order.status_url],
        "event_method": "POST",
        "ringing_timer": min(order.ring_s, LONGEST_RING_S),
        "length_timer": order.limit_s,
    }
    if isinstance(order.script, Fetch):
        fields |= {"answer_url": [order.script.url], "answer_method": "POST"}
    else:
        fields["ncco"] = actions(order.script)
    return CreateCallRequest.model_validate(fields)


def _digits(phone: str) -> str:
    """Return a phone number in Vonage's format."""
    return phone.removeprefix("+")


def _fits(call: CallInfo, sought: Sought) -> bool:
    numbers = [getattr(end, "number", None) for end in (call.to, call.from_)]
    wanted = [_digits(sought.to), _digits(sought.from_)]
    return numbers == wanted and call.uuid not in sought.others


def _event(call: CallInfo, sought: Sought) -> CallEvent:
    status = _status(call)
    return CallEvent(
        provider=NAME,
        call_id=call.uuid,
        ref=sought.ref,
        status=status,
        event=event_id(NAME, call.uuid, status, "asked"),
        duration_s=whole_seconds(call.duration) if status.ended else None,
    )


def _status(call: CallInfo) -> CallStatus:
    return known_status(NAME, CALLS, call.status)


def make(settings: Mapping[str, object]) -> VonageApplication:
    """Create the provider from its settings.

    Raises:
        InvalidValue: the settings are not valid, or the private key cannot be read.
    """
    return VonageApplication(read_table("telephony.vonage", VonageSettings, settings))
