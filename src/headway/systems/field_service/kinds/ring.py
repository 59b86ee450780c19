"""A call to one technician about one offer: at most once, on a line that stays taken to its end."""

from __future__ import annotations

from datetime import timedelta

from headway.contract.signals import Heard, Signal, SignalKind
from headway.contract.views import JobQuery
from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.answers import Dead, Retry
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.kinds.asking import ASK_EACH_S, BEGINS_S, ask
from headway.systems.field_service.names import LINES
from headway.systems.field_service.standing import is_open, run_of
from headway.systems.telephony.voice import Ask, CallOrder, Say

REFUSED_AGAIN = "5s"
PROVIDER = "provider"
"""What a refusal concerns that says nothing of the call."""
NOT_DIALLED = {"dialled": False}


class Ring:
    """The handlers of calls."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ring(
        self, job: Job, *, to: str, text: str, offer: str, stands_ms: int, candidate: str = ""
    ) -> object:
        """Calls the technician, if the offer still stands now that there is a line.

        From here on the offer stands for its full time: what passed before was the wait for a
        line.

        Args:
            job: holds the line.
            to: the technician's number.
            text: what is said.
            offer: the reference of the offer's run.
            stands_ms: how long the offer stands from now on.
            candidate: the technician's id; names the gate of calls to him.

        Raises:
            Retry: the provider takes no calls now.
            Dead: it will not place this one; there is no call.
        """
        del candidate
        if not await self._stands(offer, stands_ms):
            return NOT_DIALLED
        line = self._desk.settings.lines[job.permits[LINES]]
        script = Ask(
            text=text,
            answer_url=self._desk.url(f"/hooks/{line.provider}/answer?ref={offer}"),
        )
        await self.dial(job, to, script, within_ms=ASK_EACH_S * 1000)
        return None

    async def dial(self, job: Job, to: str, script: Ask | Say, *, within_ms: int) -> None:
        """Places one call on the line that the job holds; what happens then is told by webhooks.

        Args:
            job: holds the line.
            to: who is called.
            script: what is said.
            within_ms: until when there must be a word of the provider.

        Raises:
            Retry: the provider takes no calls now.
            Dead: it will not place this one; there is no call.
        """
        settings = self._desk.settings
        line = settings.lines[job.permits[LINES]]
        voice = self._desk.exchange.voice(line.provider)
        timing, begun = self._desk.timing, self._desk.timing.monotonic()
        await job.hand_over(timeout=timedelta(milliseconds=within_ms))
        if timing.monotonic() - begun > BEGINS_S:
            # `ask` takes a call that is not listed for one that was never placed.
            reason = "the worker stood still before the call: none was placed"
            raise Retry(reason, after=REFUSED_AGAIN)
        order = CallOrder(
            ref=job.ref,
            to=to,
            from_=line.number,
            script=script,
            status_url=self._desk.url(f"/hooks/{line.provider}/status?ref={job.ref}"),
            ring_s=settings.ring_s,
            limit_s=settings.call_limit_s,
        )
        try:
            dialled = await voice.dial(order)
        except ProviderRefused as refused:
            if refused.concerns != PROVIDER:
                raise Dead(_reason(refused)) from refused
            after = refused.retry_after_ms
            wait = REFUSED_AGAIN if after is None else timedelta(milliseconds=after)
            raise Retry(_reason(refused), after=wait) from refused
        except ProviderUnsure:
            # There may be a call: its webhooks tell, or the provider when it is asked.
            return
        await job.known_as(f"{line.provider}:{dialled.call_id}")

    async def _stands(self, offer: str, stands_ms: int) -> bool:
        store = self._desk.app.store
        reply = await store.signal(
            Signal(
                key=offer,
                event=f"line:{offer}",
                kind=SignalKind.PROGRESS,
                extend_ms=stands_ms,
                offer=True,
            )
        )
        if reply.answer is not Heard.ALREADY:
            return reply.answer is Heard.APPLIED
        request, run = run_of(offer)
        view = await store.read(JobQuery(id=request))
        return view is not None and view.run == run and is_open(view)

    async def ask(self, awaited: Awaited) -> object:
        """See `asking.ask`."""
        return await ask(self._desk, awaited)


def _reason(refused: ProviderRefused) -> str:
    return f"refused: {refused.message}"
