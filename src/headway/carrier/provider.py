"""The simulated provider: calls and messages in a simulated network in this process."""

from __future__ import annotations

import secrets
from dataclasses import replace

from headway.carrier.application import (
    CallNotice,
    DirectApplication,
    EventHandler,
    event_of,
    reason_of_call,
    reason_of_text,
)
from headway.carrier.ledger import CallPlan, TextPlan
from headway.carrier.network import PhoneNetwork
from headway.carrier.script import DrawnOutcome, RequestResult, SimulatedSettings
from headway.carrier.webhooks import HttpApplication
from headway.core.errors import InvalidValue, ProviderRefused, ProviderUnsure
from headway.runtime.timing import REAL, Timing
from headway.server.hooks.request import HookRequest, only, read_form
from headway.server.hooks.signals import event_id
from headway.server.hooks.twilio import check_twilio
from headway.systems.telephony.phone import is_phone
from headway.systems.telephony.texts import Inbound, TextEvent, TextOrder
from headway.systems.telephony.twilio_webhooks import (
    read_inbound,
    read_status,
    read_text_status,
    reply_text,
    speak,
    to_twiml,
)
from headway.systems.telephony.voice import (
    CallEvent,
    CallOrder,
    Dialled,
    Fetch,
    NotFound,
    Pressed,
    Sought,
)

_ALL = frozenset({"initiated", "ringing", "answered", "completed"})
_HERE = "here:"


class Simulated:
    """A simulated provider of calls and messages; see `Voice` and `TextProvider`.

    Its calls end with this process, and other processes do not see them.
    """

    name = "simulated"

    def __init__(
        self,
        settings: SimulatedSettings | None = None,
        *,
        timing: Timing = REAL,
        on_event: EventHandler | None = None,
        mark: str | None = None,
    ) -> None:
        """Create a provider with an empty network.

        Args:
            on_event: called with each event instead of sending webhooks; None for webhooks.
            mark: seed of its ids; None for a random one.
        """
        chosen = settings or SimulatedSettings()
        self.answers_ms = 0
        self._key = chosen.key or secrets.token_hex(16)
        application = (
            HttpApplication("AC" + "0" * 32, self._key)
            if on_event is None
            else DirectApplication(self.name, on_event)
        )
        self._is_direct = on_event is not None
        self.network = PhoneNetwork(chosen, application, timing=timing, mark=mark)
        if on_event is not None:
            self.network.inbound_urls.setdefault("", _HERE)

    async def dial(self, order: CallOrder) -> Dialled:
        outcome, nth = self._take(order.to, order.from_)
        fetched = order.script.url if isinstance(order.script, Fetch) else None
        plan = CallPlan(
            ref=order.ref,
            to=order.to,
            from_=order.from_,
            words=None if isinstance(order.script, Fetch) else to_twiml(order.script),
            words_url=fetched,
            status_url=order.status_url,
            status_events=_ALL,
            ring_ms=order.ring_s * 1_000,
            limit_ms=14_400_000 if order.limit_s is None else order.limit_s * 1_000,
        )
        call = self.network.place(plan, outcome, nth)
        await self._reply(outcome)
        return Dialled(self.name, call.sid)

    async def look_up(self, sought: Sought) -> CallEvent | NotFound:
        """See `Voice.look_up`; a call whose id is unknown is found by its reference."""
        self._must_be_there()
        ledger = self.network.ledger
        if sought.call_id is None:
            call = ledger.by_ref(sought.ref)
        else:
            call = ledger.calls.get(sought.call_id)
        if call is None:
            return NotFound.NO_CALL if sought.call_id is None else NotFound.UNCLEAR
        notice = CallNotice(
            event="asked",
            status=call.status,
            number=call.notices,
            at=self.network.pace.now_at(),
            duration_s=call.duration_s,
        )
        return event_of(self.name, call, notice)

    async def hang_up(self, call_id: str) -> None:
        """See `Voice.hang_up`.

        Raises:
            ProviderRefused: there is no such call.
        """
        self._must_be_there()
        try:
            await self.network.hang_up(call_id)
        except InvalidValue as error:
            raise ProviderRefused(error.message, provider_code="20404") from error

    async def send(self, order: TextOrder) -> str:
        outcome, nth = self._take(order.to, order.from_)
        url = order.status_url
        plan = TextPlan(
            ref=order.ref,
            to=order.to,
            from_=order.from_,
            text=order.text,
            status_url=_HERE if url is None and self._is_direct else url,
        )
        text = self.network.send(plan, outcome, nth)
        await self._reply(outcome)
        return text.sid

    def verify(self, request: HookRequest, now: int) -> None:
        del now
        check_twilio(request, auth_tokens=[self._key])

    def read_status(self, request: HookRequest) -> CallEvent | None:
        event = read_status(request, self.name)
        return None if event is None else replace(event, reason=reason_of_call(event.status))

    def read_pressed(self, request: HookRequest) -> Pressed | None:
        form = read_form(request.body)
        sid, digits = only(form, "CallSid"), only(form, "Digits")
        if sid is None or digits is None:
            return None
        event = event_id(self.name, sid, "pressed", request.query, digits)
        return Pressed(call_id=sid, ref=request.asked("ref"), digits=digits, event=event)

    def read_text_status(self, request: HookRequest) -> TextEvent | None:
        event = read_text_status(request, self.name)
        return None if event is None else replace(event, reason=reason_of_text(event.status))

    def read_inbound(self, request: HookRequest) -> Inbound | None:
        return read_inbound(request, self.name)

    speak = staticmethod(speak)
    reply_text = staticmethod(reply_text)

    async def close(self) -> None:
        """End all calls, without webhooks."""
        await self.network.close()

    def _take(self, to: str, from_: str) -> tuple[DrawnOutcome, int]:
        """Accept a request, and return its outcome.

        Raises:
            ProviderRefused: it is not carried out.
            ProviderUnsure: it is not carried out either, but the caller cannot know.
        """
        if self.network.rates.away:
            message = "the simulated provider is unavailable"
            raise ProviderRefused(message, concerns="provider")
        if not is_phone(to):
            message = f"{to[:40]!r} is not a valid phone number"
            raise ProviderRefused(message, hint="+15551234567", provider_code="21211")
        if not is_phone(from_) or (self.network.numbers and from_ not in self.network.numbers):
            message = f"{from_[:40]!r} is not one of the simulated provider's numbers"
            hint = "add it to telephony.simulated.numbers"
            raise ProviderRefused(message, hint=hint, concerns="sender", provider_code="21210")
        outcome, nth = self.network.next_outcome(to)
        match outcome.request:
            case RequestResult.REFUSED:
                message = f"{to} cannot be called"
                raise ProviderRefused(message, provider_code="21217")
            case RequestResult.TOO_MANY:
                message = "the simulated provider has received too many requests"
                raise ProviderRefused(
                    message, concerns="provider", retry_after_ms=1_000, provider_code="20429"
                )
            case RequestResult.BROKEN:
                message = "the simulated provider has failed"
                raise ProviderUnsure(message)
            case RequestResult.TAKEN | RequestResult.UNSURE | RequestResult.CUT:
                return outcome, nth

    async def _reply(self, outcome: DrawnOutcome) -> None:
        if self.network.rates.reply:
            await self.network.pace.pause(self.network.rates.reply)
        if outcome.request is not RequestResult.TAKEN:
            message = "the simulated provider did not reply"
            raise ProviderUnsure(message)

    def _must_be_there(self) -> None:
        if self.network.rates.away:
            message = "the simulated provider is unavailable"
            raise ProviderUnsure(message)
