"""What a provider says of a call, as signals to the job that placed it."""

from __future__ import annotations

from headway.contract.signals import Decided, Signal, SignalKind
from headway.contract.store import Store
from headway.contract.views import JobQuery
from headway.runtime.encoding import encode
from headway.systems.field_service.desk import Desk
from headway.systems.field_service.kinds.alert import CHOOSE
from headway.systems.field_service.kinds.asking import ASK_EACH_S, longest_ms
from headway.systems.field_service.names import ALERT
from headway.systems.field_service.standing import run_of
from headway.systems.telephony.voice import CallEvent, CallStatus

AGAIN_MS = 5_000


async def hear_call(store: Store, desk: Desk, event: CallEvent) -> None:
    """Tells the job of a call how it goes; when it has ended, its line is free.

    Args:
        store: where the jobs are.
        desk: of the system.
        event: what the provider said, proved.

    Raises:
        StoreError: the store cannot do it now.
    """
    key = event.ref or f"{event.provider}:{event.call_id}"
    # Whoever placed it may have died before it could say so; then it could not be hung up.
    known_as = f"{event.provider}:{event.call_id}"
    body = encode("body", {"status": str(event.status), "call_id": event.call_id})
    if not event.status.ended:
        alert = await _is_alert(store, event.ref)
        # Of a technician's call the provider is asked, once it is silent for so long.
        extend_ms = longest_ms(desk.settings) if alert else ASK_EACH_S * 1000
        await store.signal(
            Signal(
                key=key,
                event=event.event,
                kind=SignalKind.PROGRESS,
                extend_ms=extend_ms,
                body=body,
                known_as=known_as,
            )
        )
        return
    missed = event.status is not CallStatus.COMPLETED
    if missed and await _is_alert(store, event.ref):
        # The next channel is tried.
        signal = Signal(
            key=key,
            event=event.event,
            decided=Decided.RETRY,
            reason=str(event.status),
            after_ms=AGAIN_MS,
            stage=CHOOSE,
        )
    else:
        signal = Signal(key=key, event=event.event, reason=str(event.status), body=body)
    await store.signal(signal)


async def _is_alert(store: Store, ref: str | None) -> bool:
    job = await store.read(JobQuery(id=run_of(ref)[0])) if ref else None
    return job is not None and job.kind == ALERT
