"""Signals from webhooks: made of a provider's statuses, and delivered to the store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

import msgspec

from headway.contract.signals import Decided, Heard, Signal, SignalKind, SignalReply
from headway.contract.store import Store
from headway.core.errors import InvalidValue
from headway.core.job import MAX_RESULT
from headway.core.naming import MAX_NAME, check_name
from headway.server.hooks.request import HookRequest

MAX_REASON = 1_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StatusMeaning:
    """What a status of a provider means.

    Attributes:
        noted: of a final one: whether a label is put on the trail as well, since its job may have
            ended before.
    """

    kind: SignalKind = SignalKind.FINAL
    decided: Decided = Decided.SUCCEEDED
    noted: bool = False

    def signals(
        self, key: str, event: str, *, status: str, body: Mapping[str, object], reason: str = ""
    ) -> list[Signal]:
        """Return the signals for a key.

        Returns:
            In the order in which they are to be sent; none if the key can be none.
        """
        try:
            check_name("key", key)
        except InvalidValue:
            return []
        label = bounded_text(status.upper().replace("-", "_"))
        said = bounded_text(reason, MAX_REASON)
        note = Signal(
            key=key, event=_event(event, "note"), kind=SignalKind.NOTE, label=label, reason=said
        )
        if self.kind is SignalKind.NOTE:
            return [note]
        main = Signal(
            key=key,
            event=_event(event, self.kind),
            kind=self.kind,
            decided=self.decided,
            body=_recorded(body),
            reason="" if self.decided is Decided.SUCCEEDED else said,
        )
        return [note, main] if self.noted else [main]


def bounded_text(text: str, most: int = MAX_NAME) -> str:
    """Return a text that every store can keep: no NUL, not above the limit."""
    return text.replace("\0", "")[:most]


def event_id(*parts: str) -> str:
    """Return the id of an event from the parts that identify it."""
    # The lengths keep ("a:b", "c") and ("a", "b:c") apart.
    whole = ":".join(parts)
    if len(whole) <= MAX_NAME - 16 and "\0" not in whole and whole.count(":") == len(parts) - 1:
        return whole
    counted = "".join(f"{len(part)}:{part}" for part in parts)
    return digest_id(counted.encode())


def digest_id(data: bytes) -> str:
    """Return the id of an event that has no other than what it says."""
    return f"sha256:{sha256(data).hexdigest()}"


def _event(event: str, kind: str) -> str:
    return f"{event}:{kind}"


def _recorded(body: Mapping[str, object]) -> bytes | None:
    data = msgspec.json.encode(dict(body))
    return data if len(data) <= MAX_RESULT else None


AT_ONCE = 16


async def deliver(store: Store, signals: Sequence[Signal]) -> list[SignalReply]:
    """Report signals.

    Args:
        signals: in the order in which they are true.

    Returns:
        The reply to each, in this order.

    Raises:
        StoreError: some were not sent, or it is not known; sending all of them again is safe.
    """
    keys: dict[str, list[int]] = {}
    for place, one in enumerate(signals):
        keys.setdefault(one.key, []).append(place)
    replies = [SignalReply(answer=Heard.KEPT)] * len(signals)
    gate = asyncio.Semaphore(AT_ONCE)

    async def send(places: Sequence[int]) -> None:
        async with gate:
            for place in places:
                replies[place] = await store.signal(signals[place])

    if len(keys) <= 1:
        await send(range(len(signals)))
        return replies
    # All of them run to their end: a repeated signal has no effect, a missing one is late.
    ends = await asyncio.gather(*map(send, keys.values()), return_exceptions=True)
    for end in ends:
        if end is not None:
            raise end
    return replies


Reading = Callable[[HookRequest], Sequence[Signal]]
"""What a webhook says, as signals; none if it says nothing to a job. It is asked only about
webhooks that were proved, and must answer the same for the same webhook: its event ids are what
keeps a repeated one from having its effect again."""


class Provider(Protocol):
    """Whose signature proves a webhook, and what the webhook says."""

    def verify(self, request: HookRequest, now: int) -> None:
        """Verify the signature of a webhook.

        Args:
            now: the moment, ms UTC.

        Raises:
            Unauthenticated: it is not signed, or not by the provider, or too long ago.
        """
        ...

    def signals(self, request: HookRequest) -> Sequence[Signal]:
        """Return what a proved webhook says.

        Raises:
            InvalidValue: it is not understood.
        """
        ...
