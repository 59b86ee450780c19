"""A message to one phone: sent at most once."""

from __future__ import annotations

from datetime import timedelta

from headway.contract.signals import Decided, Signal
from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.answers import Dead, Retry
from headway.runtime.encoding import encode
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.telephony.texts import TextOrder

SPARE_MS = 5_000
"""Beyond what the provider may take; then nobody knows, and no message is sent again."""


class Text:
    """The handler of messages."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def text(self, job: Job, to: str, text: str, offer: str = "") -> None:
        """Sends a message, once.

        Args:
            job: this one.
            to: whose phone.
            text: what it says.
            offer: the reference of the offer that it makes; empty if it makes none.

        Raises:
            Dead: the provider will not send it.
            Retry: it takes no messages now.
        """
        del offer
        await self.send(job, to, text)

    async def send(self, job: Job, to: str, text: str) -> None:
        """Sends a message and settles the job; a message that may have gone out stays so.

        Raises:
            Dead: the provider will not send it.
            Retry: it takes no messages now.
        """
        settings = self._desk.settings
        if settings.text_from is None:
            reason = "refused: nobody sends texts"
            raise Dead(reason)
        texts = self._desk.exchange.text(settings.text_provider)
        await job.hand_over(timeout=timedelta(milliseconds=texts.answers_ms + SPARE_MS))
        order = TextOrder(ref=job.ref, to=to, from_=settings.text_from, text=text)
        try:
            message_id = await texts.send(order)
        except ProviderRefused as refused:
            reason = f"refused: {refused.message}"
            if refused.concerns == "provider":
                raise Retry(reason, after="5s") from refused
            raise Dead(reason) from refused
        except ProviderUnsure:
            return
        await self._desk.app.store.signal(
            Signal(
                key=job.ref,
                event=f"sent:{job.ref}",
                decided=Decided.SUCCEEDED,
                reason="sent",
                body=encode("body", {"message_id": message_id}),
            )
        )
