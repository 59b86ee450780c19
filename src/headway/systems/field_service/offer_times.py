"""How long an offer stands, by urgency: as the file says, until a dispatcher says otherwise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, cast

from pydantic import AfterValidator

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import Span
from headway.systems.directory.database import Directory
from headway.systems.field_service.records import Setting
from headway.systems.field_service.request import Urgency

SETTING = "offer_times"
"""The row of the directory that wins over the file."""
OFFER_MS = 300_000


def not_zero(span_ms: int) -> int:
    """Return how long an offer stands.

    Raises:
        InvalidValue: it is 0.
    """
    if span_ms < 1:
        message = "it is 0"
        raise InvalidValue(message, hint='how long an offer stands, as "5m"')
    return span_ms


Times = Annotated[Span, AfterValidator(not_zero)]
"""How long an offer stands: not 0."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OfferTimes:
    """How long an offer stands.

    Attributes:
        offer_timeout_ms: where the urgency has no time of its own.
        urgency_ms: by urgency.
    """

    offer_timeout_ms: int = OFFER_MS
    urgency_ms: Mapping[str, int] = field(default_factory=dict[str, int])

    def of(self, urgency: Urgency) -> int:
        """How long an offer of this urgency stands, in ms."""
        return self.urgency_ms.get(urgency, self.offer_timeout_ms)


async def current_times(directory: Directory, declared: OfferTimes) -> OfferTimes:
    """The times that hold for the next offer.

    Args:
        directory: where a dispatcher's word is kept.
        declared: what the file says, where there is none.

    Raises:
        StoreUnavailable: the directory is away.
    """
    async with directory.read() as session:
        row = await session.get(Setting, SETTING)
    if row is None:
        return declared
    said = cast("Mapping[str, object]", row.value)
    urgency = cast("Mapping[str, int]", said.get("urgency_ms") or {})
    timeout = cast("int | None", said.get("offer_timeout_ms"))
    return OfferTimes(
        offer_timeout_ms=declared.offer_timeout_ms if timeout is None else timeout,
        urgency_ms={**declared.urgency_ms, **urgency},
    )


async def set_times(
    directory: Directory, timeout_ms: int | None, urgency: Mapping[str, int]
) -> None:
    """Keep a dispatcher's word; the next offer goes by it.

    Args:
        timeout_ms: None leaves what the file says.
        urgency: in ms, by urgency; those not named are as the file says.

    Raises:
        StoreUnavailable: the directory is away; nothing was written.
    """
    value = {"offer_timeout_ms": timeout_ms, "urgency_ms": dict(urgency)}
    async with directory.change() as session:
        row = await session.get(Setting, SETTING)
        if row is None:
            session.add(Setting(name=SETTING, value=value, version=1))
        else:
            row.value, row.version = value, row.version + 1
