"""Sending: one run of a notification by one channel, at most once; and the kind of its jobs.

What may be repeated happens before the hand-over: reading the recipient and the template, checking
opt-outs and quiet hours, and rendering. Only after the hand-over is the provider called; both are
checked once more at the last moment, when the connection is open. From then on, only a definite
"nothing was sent" leads to another try.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NoReturn, TypeVar, cast

from headway.contract.signals import Signal, SignalKind
from headway.contract.views import JobQuery
from headway.core.errors import InvalidValue, LeaseLost, StoreError
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateNeed, GateSpec
from headway.core.retry import Backoff
from headway.runtime.app import App
from headway.runtime.handler_results import Dead, Ended, Next, Retry, Running, Snooze, Unknown
from headway.runtime.job import Job
from headway.runtime.reconciliation import Awaited
from headway.systems.notifications.context import NotifyContext
from headway.systems.notifications.history import declare_history
from headway.systems.notifications.message_templates import Rendered, forms_of, render
from headway.systems.notifications.notification import (
    ANSWER_LOST,
    BUCKETS_MS,
    LIMITED,
    LOST,
    NOTIFICATION,
    UNAVAILABLE,
    Args,
    Channel,
    Priority,
    SendRecord,
    Status,
    Tallied,
    body_of,
    known_as,
    record_of,
)
from headway.systems.notifications.opt_outs import unsubscribe_url
from headway.systems.notifications.recipients import RECIPIENTS
from headway.systems.notifications.records import (
    MessageTemplate,
    Recipient,
    addresses,
    opted_out,
    quiet_until,
    without_address,
)
from headway.systems.notifications.sender import (
    Accepted,
    Limited,
    Message,
    Refused,
    SendResult,
    Unavailable,
    Unsure,
)
from headway.systems.pre_send_check import Withdrawn, checking

DIRECTORY_RETRY = "5s"
"""How long a notification is postponed while the directory is unavailable or too slow."""
FRESH_S, STALE_S = 0.1, 0.5
"""Preferences older than the first are read again before the provider's request; if that takes
longer than the second, nothing is sent. So a change half a second before a send is respected."""
LEAST_CLOSED_MS = 1_000
"""How long a 429 closes a channel at least, even if its `Retry-After` is 0 or a past date."""
SIGNAL_TRIES = 5
"""Attempts to report an accepted message to the store; after that, its answer counts as lost."""

_log = logging.getLogger("headway.notifications")

Kind = TypeVar("Kind")
RunResult = Next | Snooze | Mapping[str, str] | None
"""What a run of a notification returns."""


class _Attempt:
    """One run of a notification, by the channel of its stage."""

    def __init__(self, context: NotifyContext, job: Job, args: Args) -> None:
        self._context, self._job, self._args = context, job, args
        self._channel = Channel(job.stage)
        self._timing = context.timing
        self._read_s = 0.0
        """When the recipient was last read."""
        self._handed_s = 0.0
        """When the job was handed over."""
        self._tries = 1
        """Number of this try by the channel."""

    async def send(self) -> RunResult:
        """Send the notification, or decide not to.

        Returns:
            None if it was handed over; otherwise the next channel, a later time, or the result of
            a skipped notification.

        Raises:
            Dead: the notification cannot be sent, or has expired.
            Retry: nothing was sent.
            LeaseLost: another run has the job, and this one sent nothing.
        """
        context, job, args = self._context, self._job, self._args
        if self._expired():
            self._fail("it expired before it was sent")
        self._read_s = self._timing.monotonic()
        try:
            found = await context.reader.read(job.subject or "", args.template)
        except StoreError as error:
            _log.warning("notification postponed id=%s error=%s", job.id, error)
            return Snooze(after=DIRECTORY_RETRY, reason=f"recipients cannot be read: {error}")
        recipient = found.recipient
        if recipient is None:
            self._fail(f"the recipient {job.subject!r} no longer exists")
        if why_not := self._why_not(recipient, self._channel):
            return await self._passed_over(recipient, why_not)
        if quiet_ms := self._quiet_ms(recipient):
            if args.expires_at is not None:
                # It fails when it expires, not only when the quiet hours end.
                quiet_ms = min(quiet_ms, args.expires_at - self._timing.wall_at())
            return Snooze(after=f"{max(0, quiet_ms)}ms", reason="quiet hours")
        messages = self._messages(recipient, found.template)
        # Fewer if an operator has given it all its attempts again.
        tries = 1 + (await self._failed_stages()).count(self._channel)
        self._tries = min(job.attempt, tries)
        await job.hand_over(timeout=f"{context.settings.answer_within}ms")
        self._handed_s = self._timing.monotonic()
        self._count_lateness()
        with checking(self._check):
            # Concurrently, so that a slow address does not delay the others.
            outcomes = await asyncio.gather(*map(self._send, messages))
        for message, outcome in zip(messages, outcomes, strict=True):
            if isinstance(outcome, Refused) and outcome.gone:
                await remove_address(context, recipient.id, self._channel, message.to)
        return await self._conclude(outcomes)

    def _expired(self) -> bool:
        expires_at = self._args.expires_at
        return expires_at is not None and self._timing.wall_at() >= expires_at

    def _quiet_ms(self, recipient: Recipient) -> int:
        """Return how long quiet hours delay the notification from now, in ms; 0 for not at all."""
        if self._args.category in self._context.settings.urgent:
            return 0
        now = self._timing.wall_at()
        return (quiet_until(recipient, now) or now) - now

    def _why_not(self, recipient: Recipient, channel: Channel) -> str:
        """Return why a channel is passed over, or an empty string."""
        opt_out = opted_out(recipient, channel, self._args.category)
        if opt_out:
            return f"opted out of {opt_out}"
        return "" if addresses(recipient, channel) else f"no {channel} address"

    async def _passed_over(self, recipient: Recipient, why: str) -> RunResult:
        args, channel = self._args, self._channel
        following = args.after(channel)
        if following is not None:
            return Next(following.value)
        others = (one for one in args.channels if one != channel)
        reasons = filter(None, (self._why_not(recipient, one) for one in others))
        reason = "; ".join((*reasons, why))
        if any(stage != channel for stage in await self._failed_stages()):
            # An earlier channel failed to deliver it, so the notification was not just unwanted.
            self._fail(f"no channel is left: {reason}")
        self._context.count(channel, Status.SKIPPED)
        return {"status": Status.SKIPPED, "channel": channel, "reason": reason}

    async def _failed_stages(self) -> list[str]:
        """Return the channel of each failed run."""
        job = self._job
        view = await self._context.store.read(JobQuery(id=job.id)) if job.attempt > 1 else None
        return [] if view is None else [run.stage for run in view.runs if run.outcome == "failed"]

    def _messages(self, recipient: Recipient, template: MessageTemplate | None) -> list[Message]:
        """Return the message for each address.

        Raises:
            Dead: the message cannot be rendered.
        """
        args, channel = self._args, self._channel
        rendered = Rendered(" ".join(args.title.split()), args.text, args.html)
        if args.template is not None:
            if template is None:
                self._fail(f"the template {args.template!r} no longer exists")
            try:
                rendered = render(forms_of(template, channel), args.data)
            except InvalidValue as error:
                reason = f"template {args.template!r}, {channel}.{error.message}"
                self._fail(reason)
        return [
            Message(
                id=self._job.id,
                channel=channel,
                to=address,
                title=rendered.title,
                text=rendered.text,
                html=rendered.html,
                data=args.data,
                priority=args.level.value,
                category=args.category,
                expires_at=args.expires_at,
                unsubscribe_url=unsubscribe_url(self._context, recipient, args.category),
            )
            for address in addresses(recipient, channel)
        ]

    def _count_lateness(self) -> None:
        tally, channel = self._context.tally, self._channel
        late_ms = max(0, self._timing.wall_at() - self._job.claimed.due_at)
        bucket = next((str(one) for one in BUCKETS_MS if late_ms <= one), "inf")
        tally.happened(Tallied.LATE, f"{channel}:{bucket}")
        if late_ms:
            tally.happened(Tallied.LATE_MS, channel, late_ms)

    async def _check(self) -> bool:
        """Read the preferences again, unless they were just read; see `check_before_send`.

        Raises:
            Withdrawn: the recipient has opted out or has quiet hours now, the preferences cannot be
                read in time, the notification has expired, or the answer already counts as lost.
        """
        if self._expired():
            raise Withdrawn
        begun_s = self._timing.monotonic()
        if begun_s - self._read_s <= FRESH_S:
            return False
        try:
            found = (await self._context.reader.read(self._job.subject or "", None)).recipient
        except StoreError as error:
            raise Withdrawn(DIRECTORY_RETRY) from error
        now_s = self._timing.monotonic()
        over = now_s - self._handed_s > self._context.settings.answer_within / 1000
        if over or now_s - begun_s > STALE_S:
            raise Withdrawn(DIRECTORY_RETRY)
        if found is None or self._why_not(found, self._channel) or self._quiet_ms(found):
            raise Withdrawn
        self._read_s = begun_s
        return True

    async def _send(self, message: Message) -> SendResult | Withdrawn:
        sender = self._context.senders.get(self._channel)
        if sender is None:
            # This worker's settings may be older than those with which the intake accepted it.
            return Unavailable(f"this worker has no sender for {self._channel}")
        try:
            return await sender.send(message)
        except Withdrawn as withdrawn:
            return withdrawn
        # A sender that raises has a bug; it is unknown whether it had sent the message.
        except Exception as error:  # noqa: BLE001
            _log.exception("sender failed channel=%s", self._channel)
            return Unsure(f"{type(error).__name__}: {error}"[:300])

    async def _conclude(self, outcomes: Sequence[SendResult | Withdrawn]) -> RunResult:
        """Record the outcome of a notification; of several devices, one that accepted it decides.

        Raises:
            Dead: the notification was refused permanently, and no channel is left.
            Retry: nothing was sent.
        """
        context, job, args, channel = self._context, self._job, self._args, self._channel
        accepted = [one for one in outcomes if isinstance(one, Accepted)]
        if accepted:
            await self._accepted(accepted)
            return None
        if (unsure := _first(outcomes, Unsure)) is not None:
            context.count(channel, LOST)
            _log.warning("outcome unknown id=%s: %s: %s", job.id, ANSWER_LOST, unsure.reason)
            await self._end_as_sent(reason=f"{ANSWER_LOST}: {unsure.reason}")
            return None
        if (limited := _first(outcomes, Limited)) is not None:
            context.count(channel, LIMITED)
            closed_ms = context.settings.channel(channel).closed_for
            if limited.retry_after_ms is not None:
                closed_ms = max(LEAST_CLOSED_MS, limited.retry_after_ms)
            job.close(channel.slots, after=f"{closed_ms}ms", reason=limited.reason[:500])
            return Snooze(after="0s", reason=f"{channel}: {limited.reason}")
        if (withdrawn := _first(outcomes, Withdrawn)) is not None:
            # Nothing was sent; the next run reads the preferences again, and decides.
            reason = "preferences changed or could not be read in time"
            return Snooze(after=withdrawn.after, reason=reason)
        unavailable = _first(outcomes, Unavailable)
        refused = "; ".join(dict.fromkeys(cast("Refused", one).reason for one in outcomes))
        reason = f"{channel}: {refused if unavailable is None else unavailable.reason}"
        if unavailable is not None and self._tries < context.settings.attempts:
            context.count(channel, UNAVAILABLE)
            # A short Retry-After must not use up the attempts sooner than silence would.
            least_ms = BACKOFF.delay_ms(self._tries, job.ref)
            raise Retry(reason, after=f"{max(least_ms, unavailable.retry_after_ms or 0)}ms")
        following = args.after(channel)
        if following is None:
            self._fail(reason)
        context.count(channel, Status.FAILED)
        raise Retry(reason, after="0s", stage=following.value)

    async def _accepted(self, accepted: Sequence[Accepted]) -> None:
        """Record that the provider accepted it; it then awaits its delivery without a place."""
        job, channel = self._job, self._channel
        self._context.count(channel, Status.SENT)
        ids = [one.provider_id for one in accepted if one.provider_id is not None]
        if not ids:
            # No event will report its delivery.
            await self._end_as_sent()
            return
        for n, id_ in enumerate(ids):
            signal = Signal(
                key=job.ref,
                event=f"sent:{job.ref}:{n}",
                kind=SignalKind.PROGRESS,
                body=body_of(SendRecord(status=Status.SENT, channel=channel)),
                extend_ms=self._context.settings.delivery_within,
                known_as=known_as(id_),
            )
            await _signal(self._context, signal)
        try:
            await job.give_back(channel.slots)
        except (LeaseLost, StoreError):
            _log.info("place already released id=%s", job.id)

    async def _end_as_sent(self, reason: str = "") -> None:
        """End the notification as SENT."""
        job = self._job
        record = SendRecord(status=Status.SENT, channel=self._channel, reason=reason)
        signal = Signal(key=job.ref, event=f"sent:{job.ref}", body=body_of(record))
        await _signal(self._context, signal)

    def _fail(self, reason: str) -> NoReturn:
        """Count a failure, and end the notification.

        Raises:
            Dead: always, with this reason.
        """
        self._context.count(self._channel, Status.FAILED)
        raise Dead(reason[:1_000])


def _first(outcomes: Sequence[object], kind: type[Kind]) -> Kind | None:
    return next((one for one in outcomes if isinstance(one, kind)), None)


async def _signal(context: NotifyContext, signal: Signal) -> None:
    """Send a signal to the store, with retries.

    Raises:
        StoreError: every try failed; reconciling then reports the answer as lost.
    """
    for _ in range(SIGNAL_TRIES - 1):
        with suppress(StoreError):
            await context.store.signal(signal)
            return
        await context.timing.pause(1.0)
    await context.store.signal(signal)


async def remove_address(
    context: NotifyContext, recipient: str, channel: Channel, address: str
) -> None:
    """Remove an address that no longer exists from its recipient.

    If the directory is unavailable, the address stays, and the next send tries again.
    """
    try:
        async with context.directory.change() as session:
            found = await session.get(Recipient, recipient, with_for_update=True)
            values = {} if found is None else without_address(found, channel, address)
            if found is not None and values:
                await RECIPIENTS.change(session, found, values, context.timing.wall_at())
                _log.info("address removed recipient=%s channel=%s", recipient, channel)
    except StoreError as error:
        _log.warning(
            "address not removed recipient=%s channel=%s error=%s", recipient, channel, error
        )


BACKOFF = Backoff(attempts=100_000, base="5s", cap="15m")
"""Retries of unreachable providers; the setting `attempts` limits them by channel."""
TARGET = "50ms"
"""Target time from due to start, shown next to each lane's actual time."""


def declare(app: App, context: NotifyContext) -> None:
    """Declare the kinds and lanes of this system on an app."""
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

    async def send(  # noqa: PLR0913, PLR0917  (the job's arguments)
        job: Job,
        channels: list[Channel],
        category: str,
        level: Priority,
        template: str | None = None,
        data: dict[str, Any] | None = None,
        title: str = "",
        text: str = "",
        html: str | None = None,
        expires_at: int | None = None,
    ) -> RunResult:
        args = Args(channels, category, level, template, data or {}, title, text, html, expires_at)
        return await _Attempt(context, job, args).send()

    recorded = declare_history(app, context)
    kind = app.job(
        name=NOTIFICATION,
        lane=Channel.PUSH.lane,
        stages={channel.value: gates(channel) for channel in Channel},
        retry=BACKOFF,
        reconcile=ask,
        keep=f"{settings.keep}ms",
        **recorded,
    )(send)
    for channel in list(Channel)[1:]:
        kind.stage(channel.value)(send)
    context.declared = app


async def reconcile(context: NotifyContext, awaited: Awaited) -> Running | Ended | Unknown:
    """Decide about an awaiting notification, at its deadline or after its worker's death.

    If the provider had answered, the notification continues to await its delivery, and ends as
    SENT. Otherwise it is unknown whether it was sent: it ends as SENT with that reason, and is
    never sent again.
    """
    job = await context.store.read(JobQuery(id=awaited.id))
    if job is None or job.run != awaited.run:
        return Unknown()
    record = record_of(job)
    if record is None:
        context.count(job.stage, LOST)
        body = {"status": Status.SENT, "channel": job.stage, "reason": ANSWER_LOST}
        return Ended("succeeded", body=body)
    handed_at = next((one.handed_at for one in job.runs if one.run == job.run), None) or 0
    left_ms = handed_at + context.settings.delivery_within - context.timing.wall_at()
    if left_ms > 0:
        return Running(extend=f"{left_ms}ms")
    return Ended("succeeded", body={"status": Status.SENT, "channel": record.channel})
