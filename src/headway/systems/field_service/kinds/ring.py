"""A call to one technician about one offer: at most once, on a line that stays taken to its end."""

from __future__ import annotations

from datetime import timedelta

from headway.contract.signals import Heard, Signal, SignalKind
from headway.contract.views import JobQuery
from headway.core.errors import ProviderRefused, ProviderUnsure
from headway.runtime.answers import Dead, Ended, Retry, Running, Unknown
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.names import LINES
from headway.systems.field_service.ring_args import call_of
from headway.systems.field_service.standing import is_open, run_of
from headway.systems.telephony.voice import Ask, CallOrder, NotFound, Say, Sought

SPARE_S = 60
"""Beyond the longest call: then the provider is asked."""
REFUSED_AGAIN = "5s"
PROVIDER = "provider"
"""What a refusal concerns that says nothing of the call."""
NOT_DIALLED = {"dialled": False}


class Ring:
    """The handlers of calls."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    async def ring(self, job: Job, to: str, text: str, offer: str, stands_ms: int) -> object:
        """Calls the technician, if the offer still stands now that there is a line.

        From here on the offer stands for its full time: what passed before was the wait for a
        line.

        Args:
            job: holds the line.
            to: the technician's number.
            text: what is said.
            offer: the reference of the offer's run.
            stands_ms: how long the offer stands from now on.

        Raises:
            Retry: the provider takes no calls now.
            Dead: it will not place this one; there is no call.
        """
        if not await self._stands(offer, stands_ms):
            return NOT_DIALLED
        line = self._desk.settings.lines[job.permits[LINES]]
        script = Ask(
            text=text,
            answer_url=self._desk.url(f"/hooks/{line.provider}/answer?ref={offer}"),
        )
        await self.dial(job, to, script)
        return None

    async def dial(self, job: Job, to: str, script: Ask | Say) -> None:
        """Places one call on the line that the job holds; what happens then is told by webhooks.

        Raises:
            Retry: the provider takes no calls now.
            Dead: it will not place this one; there is no call.
        """
        settings = self._desk.settings
        line = settings.lines[job.permits[LINES]]
        voice = self._desk.exchange.voice(line.provider)
        await job.hand_over(timeout=timedelta(milliseconds=self.longest_ms))
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

    @property
    def longest_ms(self) -> int:
        """How long a call can take, and a little more."""
        settings = self._desk.settings
        return (settings.ring_s + settings.call_limit_s + SPARE_S) * 1000

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
        """Asks the provider what became of a call whose end nobody has told."""
        line = self._desk.settings.lines.get(awaited.permits.get(LINES, ""))
        if line is None or awaited.handed_at is None:
            return Unknown()
        view = await self._desk.app.store.read(JobQuery(id=awaited.id))
        runs = view.runs if view is not None else ()
        known = {one.run: call_of(one.keys) for one in runs}
        mine = known.pop(awaited.run, None)
        sought = Sought(
            ref=awaited.ref,
            to=str(awaited.args.get("to", "")),
            from_=line.number,
            since=int(awaited.handed_at.timestamp() * 1000),
            call_id=mine[1] if mine else None,
            others=[one[1] for one in known.values() if one],
        )
        try:
            event = await self._desk.exchange.voice(line.provider).look_up(sought)
        except ProviderUnsure:
            return Running(extend=timedelta(seconds=SPARE_S))
        if isinstance(event, NotFound):
            return Unknown()
        if not event.status.ended:
            return Running(extend=timedelta(seconds=SPARE_S))
        body = {"status": str(event.status), "call_id": event.call_id, "asked": True}
        return Ended("succeeded", body=body, reason=str(event.status))


def _reason(refused: ProviderRefused) -> str:
    return f"refused: {refused.message}"
