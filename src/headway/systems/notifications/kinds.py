"""The kind of this system: a notification, with a stage for each channel."""

from __future__ import annotations

from typing import Any

from headway.contract.views import JobQuery
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateNeed, GateSpec
from headway.core.retry import Backoff
from headway.runtime.answers import Ended, Running, Unknown
from headway.runtime.app import App
from headway.runtime.awaited import Awaited
from headway.runtime.job import Job
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.names import ANSWER_LOST, LOST, NOTIFICATION, Channel, Status
from headway.systems.notifications.notification import Args, said_of
from headway.systems.notifications.sending import Attempt, Back

TRIES = Backoff(attempts=100_000, base="5s", cap="15m")
"""How providers that cannot be reached are tried again; how often, the settings say by channel."""
TARGET = "50ms"
"""From due to start; shown beside what each lane reaches."""


def declare(app: App, context: NotifyContext) -> None:
    """Add the kind of this system and its lanes to an app."""
    settings = context.settings

    def gates(channel: Channel) -> list[GateSpec | GateNeed]:
        limits = settings.channel(channel)
        # Held until the provider has answered, not only until the hand-over.
        at_once = Slots(channel.slots, limits.at_once).take(hold="settled")
        found: list[GateSpec | GateNeed] = [at_once]
        if limits.rate is not None:
            found.append(Rate(channel.rate, limits.rate, per=f"{limits.per}ms"))
        return found

    for channel in Channel:
        app.lane(channel.lane, target=TARGET)

    async def ask(awaited: Awaited) -> Running | Ended | Unknown:
        return await reconcile(context, awaited)

    async def send(  # noqa: PLR0913, PLR0917  (what a notification carries)
        job: Job,
        channels: list[str],
        category: str,
        level: str,
        template: str | None = None,
        data: dict[str, Any] | None = None,
        title: str = "",
        text: str = "",
        html: str | None = None,
        expires_at: int | None = None,
    ) -> Back:
        args = Args(channels, category, level, template, data or {}, title, text, html, expires_at)
        return await Attempt(context, job, args).send()

    kind = app.job(
        name=NOTIFICATION,
        lane=Channel.PUSH.lane,
        stages={channel.value: gates(channel) for channel in Channel},
        retry=TRIES,
        reconcile=ask,
        keep=f"{settings.keep}ms",
    )(send)
    for channel in list(Channel)[1:]:
        kind.stage(channel.value)(send)
    context.app = app


async def reconcile(context: NotifyContext, awaited: Awaited) -> Running | Ended | Unknown:
    """Decide about a notification that awaits, at its deadline or after its worker's death.

    If the provider had answered, it goes on awaiting its delivery, and is SENT at the end. If the
    provider's answer never came, it is unknown whether it was sent: it is reported as SENT with
    that reason, and never sent again.

    Raises:
        StoreError: the store is away; it is asked again.
    """
    job = await context.store.read(JobQuery(id=awaited.id))
    if job is None or job.run != awaited.run:
        return Unknown()
    said = said_of(job)
    if said is None:
        context.count(job.stage, LOST)
        body = {"status": Status.SENT, "channel": job.stage, "reason": ANSWER_LOST}
        return Ended("succeeded", body=body)
    handed_at = next((one.handed_at for one in job.runs if one.run == job.run), None) or 0
    left_ms = handed_at + context.settings.delivery_within - context.parts.timing.wall_at()
    if left_ms > 0:
        return Running(extend=f"{left_ms}ms")
    return Ended("succeeded", body={"status": Status.SENT, "channel": said.channel})
