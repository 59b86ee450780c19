"""An application at Vonage: places calls, and reads what Vonage says of them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar

import msgspec
from anyio import CapacityLimiter, to_thread
from vonage_http_client.auth import Auth  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from vonage_utils.errors import VonageError  # pyright: ignore[reportMissingTypeStubs]  (as above)
from vonage_voice import Voice as Client  # pyright: ignore[reportMissingTypeStubs]  (as above)
from vonage_voice.models import (  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)  # pyright: ignore[reportMissingTypeStubs]  (as above)
    CallInfo,
    CreateCallRequest,
    Dtmf,
    Input,
    ListCallsFilter,
    Talk,
)
from vonage_voice.models.ncco import NccoAction  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.core.errors import ProviderError, ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL, Timing
from headway.server.hooks.request import HookRequest
from headway.server.hooks.signals import event_id
from headway.systems.last_moment import Withdrawn
from headway.systems.telephony.voice import (
    SKEW_MS,
    Ask,
    CallEvent,
    CallOrder,
    CallStatus,
    Dialled,
    Fetch,
    NotFound,
    Pressed,
    Say,
    Sought,
    Spoken,
    the_one,
)
from headway.systems.telephony.vonage.settings import VonageSettings
from headway.systems.telephony.vonage.transport import UNKNOWN, WireClient, read_refusal
from headway.systems.telephony.vonage.webhooks import (
    CALLS,
    NAME,
    check_vonage,
    read_pressed,
    read_status,
    whole,
)
from headway.systems.telephony.wire import AT_ONCE, Wire

LONGEST_WAIT_S = 10
"""The longest that Vonage waits for keys."""


def actions(script: Say | Ask) -> list[NccoAction]:
    """Return a script as actions.

    A question is spoken twice, and keys can be pressed at any time. Silence is reported once, after
    it.

    Raises:
        ValueError: the text is too long, or too many keys are asked for.
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
"""How many pages of calls are looked through for one that is sought."""

T = TypeVar("T")


class Application:
    """See `Voice`.

    Attributes:
        answers_ms: see `Voice`.
    """

    name = NAME

    def __init__(self, settings: VonageSettings, *, timing: Timing = REAL) -> None:
        """Connect nothing yet."""
        self._settings = settings
        self._auth = Auth(application_id=settings.application_id, private_key=settings.private_key)
        self._wire = Wire(self.name, read_refusal, timeout_ms=settings.timeout, timing=timing)
        self.answers_ms = self._wire.answers_ms
        self._threads: CapacityLimiter | None = None

    async def dial(self, order: CallOrder) -> Dialled:
        """See `Voice.dial`.

        Raises:
            ProviderRefused: there is definitely no call: Vonage refused, or never saw the order.
        """
        try:
            asked = _request(order)
        except (ValueError, VonageError) as error:
            message = f"vonage takes no such order: {_first_line(error)}"
            # Neither the number nor Vonage can help what is to be said.
            raise ProviderRefused(message, concerns="callee") from error
        made = await self._ask(lambda client: client.create_call(asked))
        return Dialled(self.name, made.uuid)

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        """See `Voice.look_up`.

        Raises:
            ProviderUnsure: Vonage cannot be asked now, or one of several such calls still runs.
        """
        try:
            if sought.call_id is not None:
                call = await self._fetch(sought.call_id)
                return NotFound.UNCLEAR if call is None else _event(call, sought)
            return the_one([_event(one, sought) for one in await self._list(sought)])
        except ProviderRefused as refused:
            message = f"vonage cannot be asked: {refused.message}"
            raise ProviderUnsure(message, hint=refused.hint) from refused

    async def hang_up(self, call_id: str) -> None:
        """See `Voice.hang_up`.

        Raises:
            ProviderRefused: Vonage would not, and the call has not ended.
        """
        try:
            await self._ask(lambda client: client.hangup(call_id))
        except ProviderRefused:
            call = await self._fetch(call_id)
            if call is None or not _status(call).ended:
                raise

    def verify(self, request: HookRequest, now: int) -> None:
        """See `Voice.verify`."""
        check_vonage(request, self._settings.signature_secret, now)

    def read_status(self, request: HookRequest) -> CallEvent | None:
        """See `Voice.read_status`."""
        return read_status(request)

    def read_pressed(self, request: HookRequest) -> Pressed | None:
        """See `Voice.read_pressed`."""
        return read_pressed(request)

    def speak(self, script: Say | Ask) -> Spoken:
        """See `Voice.speak`."""
        said = [one.model_dump(by_alias=True, exclude_none=True) for one in actions(script)]
        return Spoken(msgspec.json.encode(said), "application/json")

    async def close(self) -> None:
        """See `Voice.close`."""
        await self._wire.close()

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
        message = f"vonage has had more than {PAGE * PAGES} calls since then"
        raise ProviderUnsure(message)

    async def _ask(self, ask: Callable[[Client], T]) -> T:
        if self._threads is None:
            self._threads = CapacityLimiter(AT_ONCE)
        client = Client(WireClient(self._auth, self._wire, self._settings.base_url))
        try:
            return await to_thread.run_sync(ask, client, limiter=self._threads)
        except (ProviderError, Withdrawn):
            raise
        except Exception as error:  # (the client raises anything for a reply of another shape)
            message = f"vonage's reply is not understood: {type(error).__name__}"
            hint = "look it up; do not send it again"
            raise ProviderUnsure(message, hint=hint) from error


def _request(order: CallOrder) -> CreateCallRequest:
    said: dict[str, object] = {
        "to": [{"number": _digits(order.to)}],
        "from_": {"number": _digits(order.from_)},
        "event_url": [order.status_url],
        "event_method": "POST",
        "ringing_timer": min(order.ring_s, LONGEST_RING_S),
        "length_timer": order.limit_s,
    }
    if isinstance(order.script, Fetch):
        said |= {"answer_url": [order.script.url], "answer_method": "POST"}
    else:
        said["ncco"] = actions(order.script)
    return CreateCallRequest.model_validate(said)


def _digits(phone: str) -> str:
    """A number as Vonage writes it."""
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
        duration_s=whole(call.duration) if status.ended else None,
    )


def _status(call: CallInfo) -> CallStatus:
    status = CALLS.get(call.status)
    if status is None:
        message = f"vonage says that the call is {call.status[:40]!r}, which is not known"
        raise ProviderUnsure(message)
    return status


def _first_line(error: Exception) -> str:
    """Return the first line of a message; later lines may show the input."""
    return str(error).partition("\n")[0]
