"""Messages of the simulated world: sent, delivered, read and answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.carrier.application import Application, NotUnderstood
from headway.carrier.ledger import Ledger, Text, TextPlan
from headway.carrier.pace import Pace
from headway.carrier.script import Fate
from headway.carrier.tasks import Tasks
from headway.carrier.twiml import Message, read_twiml
from headway.core.errors import InvalidValue
from headway.systems.telephony.texts import TextStatus

SENT_MS = 300
"""How long it takes until a message is on its way."""
DELIVERED_MS = 1_500
"""How long it is on its way."""


class Post(Protocol):
    """Sends a webhook."""

    def __call__(
        self, sid: str, purpose: str, deliver: Callable[[], Awaitable[None]], *, last: bool
    ) -> None:
        """Sends it; returns at once."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Texting:
    """The messages of one world.

    Attributes:
        ledger: writes them down.
        pace: of the world.
        tasks: in which they are under way.
        application: is told.
        post: carries what it is told.
        new_sid: makes ids.
        inbound_urls: where it is told that somebody wrote to a number; "" stands for any.
    """

    ledger: Ledger
    pace: Pace
    tasks: Tasks
    application: Application
    post: Post
    new_sid: Callable[[str], str]
    inbound_urls: Mapping[str, str]

    def send(self, plan: TextPlan, fate: Fate, nth: int) -> Text:
        """Sends a message to a person, who may answer; returns at once.

        Args:
            plan: what it is sent with.
            fate: what becomes of it.
            nth: how often the number was called or written to before.
        """
        sid = self.new_sid("SM")
        text = Text(sid=sid, plan=plan, fate=fate, nth=nth, sent_at=self.pace.now_at())
        self.ledger.texts[sid] = text
        self.tasks.spawn(self._live(text, fate))
        return text

    def write(self, from_: str, to: str, words: str) -> Text:
        """Lets a person write to one of the numbers; returns at once.

        Args:
            from_: the person's number.
            to: the number that is written to.
            words: what is written.
        """
        plan = TextPlan(ref="", to=to, from_=from_, text=words)
        text = self._noted(plan, inbound=True)
        url = self.inbound_urls.get(to) or self.inbound_urls.get("")
        if url is not None:
            self.post(text.sid, text.sid, lambda: self._tell(text, url), last=True)
        return text

    async def _live(self, text: Text, fate: Fate) -> None:
        await self.pace.pause(SENT_MS)
        self._is_now(text, TextStatus.SENT)
        await self.pace.pause(DELIVERED_MS)
        self._is_now(text, TextStatus.DELIVERED if fate.arrives else TextStatus.UNDELIVERED)
        if fate.arrives and fate.text and self.inbound_urls:
            await self.pace.pause(fate.think_ms)
            self.write(text.plan.to, text.plan.from_, fate.text)

    def _is_now(self, text: Text, status: TextStatus) -> None:
        text.status = status
        if text.plan.status_url is None:
            return
        number, text.told = text.told, text.told + 1
        purpose = f"{text.plan.to}:{text.nth}:{status}"
        self.post(
            text.sid,
            purpose,
            lambda: self.application.text_status(text, status, number),
            last=status.ended,
        )

    async def _tell(self, text: Text, url: str) -> None:
        said = await self.application.inbound(text, url)
        try:
            steps = read_twiml(said)
        except InvalidValue as error:
            raise NotUnderstood(str(error)) from error
        for one in steps:
            if isinstance(one, Message):
                plan = TextPlan(ref="", to=text.plan.from_, from_=text.plan.to, text=one.text)
                self._noted(plan, inbound=False)

    def _noted(self, plan: TextPlan, *, inbound: bool) -> Text:
        text = Text(
            sid=self.new_sid("SM"),
            plan=plan,
            fate=None,
            nth=0,
            sent_at=self.pace.now_at(),
            status=TextStatus.DELIVERED,
            inbound=inbound,
        )
        self.ledger.texts[text.sid] = text
        return text
