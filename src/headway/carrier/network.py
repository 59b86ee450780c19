"""The simulated phone network: calls, messages, the people who answer, and webhooks."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from hashlib import blake2b

from headway.carrier.application import (
    Application,
    CallNotice,
    DeliveryRefused,
    ReplyMessage,
    read_twiml,
)
from headway.carrier.call_lifecycle import Life
from headway.carrier.ledger import CallPlan, CarrierLedger, PlacedCall, TextMessage, TextPlan
from headway.carrier.script import DrawnOutcome, Person, Rates, SimulatedSettings, draw_outcome
from headway.carrier.webhook_delivery import Pace, Tasks, WebhookSender, delivery_of
from headway.core.errors import InvalidValue
from headway.runtime.timing import REAL, Timing
from headway.systems.telephony.texts import TextStatus
from headway.systems.telephony.voice import CallStatus

SENT_MS = 300
"""Time until a message is sent."""
DELIVERED_MS = 1_500
"""Time from sending a message to its delivery."""


_EVENTS: Mapping[CallStatus, str] = {
    CallStatus.QUEUED: "initiated",
    CallStatus.RINGING: "ringing",
    CallStatus.IN_PROGRESS: "answered",
}


class PhoneNetwork:
    """A simulated phone network.

    Attributes:
        rates: current rates of outcomes and faults.
        numbers: numbers that calls can be made from; empty for any.
        inbound_urls: URLs that receive inbound messages, by number; "" is for all other numbers.
    """

    def __init__(
        self,
        settings: SimulatedSettings,
        application: Application,
        *,
        timing: Timing = REAL,
        mark: str | None = None,
    ) -> None:
        """Create an empty network.

        Args:
            mark: seed of its ids; None for a random one.
        """
        self.ledger = CarrierLedger(settings.channels)
        self.rates: Rates = settings
        self.numbers = set(settings.numbers)
        self.inbound_urls = {} if settings.inbound_url is None else {"": settings.inbound_url}
        self.pace = Pace(timing, settings.speed)
        self._seed = settings.seed
        self._mark = secrets.token_hex(8) if mark is None else mark
        self._application = application
        self._tasks = Tasks()
        self._webhooks = WebhookSender(self.pace, self._tasks, self.ledger.posts)
        self._lives: dict[str, Life] = {}
        self._asked: Counter[str] = Counter()
        self._people: dict[str, tuple[Person, int]] = {}
        self._made = 0

    def change(self, written: Mapping[str, object]) -> None:
        """Change some rates from now on; see `Rates.changed`."""
        self.rates = self.rates.changed(written)

    def set_person(self, phone: str, person: Person) -> None:
        """Set what the person at a number does from now on."""
        self._people[phone] = (person, self._asked[phone])

    def next_outcome(self, to: str) -> tuple[DrawnOutcome, int]:
        """Draw the outcome of the next request to a number.

        Returns:
            The outcome, and the number of earlier requests to the number.
        """
        nth = self._asked[to]
        self._asked[to] += 1
        person, since = self._people.get(to, (Person(), 0))
        outcome = draw_outcome(self.rates, person, self._seed, to, nth, nth - since)
        self.ledger.requests[outcome.request] += 1
        return outcome, nth

    def place(self, plan: CallPlan, outcome: DrawnOutcome, nth: int) -> PlacedCall:
        """Start a call in the background, with a result of `next_outcome`."""
        sid = self._new_sid("CA")
        call = PlacedCall(
            sid=sid, plan=plan, outcome=outcome, nth=nth, placed_at=self.pace.now_at()
        )
        self.ledger.began(call)
        self._notify(call)
        self._lives[sid] = life = Life(call, self.pace, self._application, self._notify)
        self._tasks.spawn(life.run())
        return call

    def send(self, plan: TextPlan, outcome: DrawnOutcome, nth: int) -> TextMessage:
        """Send a message to a person, who may reply, in the background; as `place`."""
        sid = self._new_sid("SM")
        text = TextMessage(sid=sid, plan=plan, outcome=outcome, nth=nth, sent_at=self.pace.now_at())
        self.ledger.texts[sid] = text
        self._tasks.spawn(self._live_text(text, outcome))
        return text

    def write(self, from_: str, to: str, words: str) -> TextMessage:
        """Send a message from a person to one of the numbers, in the background."""
        plan = TextPlan(ref="", to=to, from_=from_, text=words)
        text = self._record(plan, inbound=True)
        url = self.inbound_urls.get(to) or self.inbound_urls.get("")
        if url is not None:
            self._post(text.sid, text.sid, lambda: self._deliver_inbound(text, url), last=True)
        return text

    async def hang_up(self, sid: str) -> None:
        """End a call from either side, and wait until it has ended.

        Raises:
            InvalidValue: there is no such call.
        """
        if sid not in self.ledger.calls:
            message = f"there is no call {sid[:40]!r}"
            raise InvalidValue(message)
        life = self._lives.get(sid)
        if life is not None:
            life.hang_up()
            await life.ended.wait()

    def replace_script(self, sid: str, words: str | None, url: str | None, method: str) -> bool:
        """Replace the script of a call if it is answered; return whether it is."""
        life, call = self._lives.get(sid), self.ledger.calls.get(sid)
        if life is None or call is None or call.status is not CallStatus.IN_PROGRESS:
            return False
        life.replace_script(words, url, method)
        return True

    async def idle(self) -> None:
        """Wait until no call and no webhook is in progress."""
        await self._tasks.idle()

    async def close(self) -> None:
        """End all calls and messages, without webhooks."""
        await self._tasks.close()
        await self._application.close()

    def _new_sid(self, kind: str) -> str:
        """Return a new id; only networks with the same mark create the same ids."""
        self._made += 1
        drawn = blake2b(f"{self._mark}:{self._made}".encode(), digest_size=16).hexdigest()
        return kind + drawn

    def _notify(self, call: PlacedCall) -> None:
        if call.status.ended:
            self.ledger.ended(call)
            self._lives.pop(call.sid, None)
        event = _EVENTS.get(call.status, "completed")
        if call.plan.status_url is None or event not in call.plan.status_events:
            return
        notice = CallNotice(
            event=event,
            status=call.status,
            number=call.notices,
            at=self.pace.now_at(),
            duration_s=call.duration_s,
        )
        call.notices += 1
        self._post(
            call.sid,
            f"{call.plan.to}:{call.nth}:{event}",
            lambda: self._application.call_status(call, notice),
            last=call.status.ended,
        )

    def _post(
        self, sid: str, purpose: str, deliver: Callable[[], Awaitable[None]], *, last: bool
    ) -> None:
        delivery = delivery_of(self.rates, self._seed, purpose)
        self._webhooks.send(sid, delivery, deliver, tries=self.rates.post_tries, last=last)

    async def _live_text(self, text: TextMessage, outcome: DrawnOutcome) -> None:
        await self.pace.pause(SENT_MS)
        self._set_status(text, TextStatus.SENT)
        await self.pace.pause(DELIVERED_MS)
        self._set_status(text, TextStatus.DELIVERED if outcome.arrives else TextStatus.UNDELIVERED)
        if outcome.arrives and outcome.text and self.inbound_urls:
            await self.pace.pause(outcome.think_ms)
            self.write(text.plan.to, text.plan.from_, outcome.text)

    def _set_status(self, text: TextMessage, status: TextStatus) -> None:
        text.status = status
        if text.plan.status_url is None:
            return
        number, text.notices = text.notices, text.notices + 1
        purpose = f"{text.plan.to}:{text.nth}:{status}"
        self._post(
            text.sid,
            purpose,
            lambda: self._application.text_status(text, status, number),
            last=status.ended,
        )

    async def _deliver_inbound(self, text: TextMessage, url: str) -> None:
        document = await self._application.inbound(text, url)
        try:
            steps = read_twiml(document)
        except InvalidValue as error:
            raise DeliveryRefused(str(error)) from error
        for one in steps:
            if isinstance(one, ReplyMessage):
                plan = TextPlan(ref="", to=text.plan.from_, from_=text.plan.to, text=one.text)
                self._record(plan, inbound=False)

    def _record(self, plan: TextPlan, *, inbound: bool) -> TextMessage:
        text = TextMessage(
            sid=self._new_sid("SM"),
            plan=plan,
            outcome=None,
            nth=0,
            sent_at=self.pace.now_at(),
            status=TextStatus.DELIVERED,
            inbound=inbound,
        )
        self.ledger.texts[text.sid] = text
        return text
