"""The table [telephony.simulated]: how calls, messages and webhooks end, and how often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.runtime.settings_table import Span, read_table
from headway.systems.telephony.phone import Phone

ENDS: Mapping[str, float] = {"answer": 14, "busy": 2, "no_answer": 2, "failed": 1}
"""The default proportions of how calls end."""

PRESSES: Mapping[str, float] = {"accept": 10, "decline": 6, "silent": 3, "wrong": 1}
"""The default proportions of people's answers."""


def _bounds(value: object) -> object:
    """Two spans, or one that is both; a variable gives two by a comma.

    Raises:
        ValueError: they are not two, or in the wrong order.
    """
    if isinstance(value, str) and "," in value:
        value = value.split(",")
    if isinstance(value, list | tuple):
        both = cast("list[object] | tuple[object, ...]", value)
        if len(both) != 2:
            message = "give the least and the most"
            raise ValueError(message)
        least, most = (parse_duration(_stripped(one)) for one in both)
    else:
        least = most = parse_duration(value)
    if least > most:
        message = "the least comes first"
        raise ValueError(message)
    return least, most


def _stripped(one: object) -> object:
    return one.strip() if isinstance(one, str) else one


def _several(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(one.strip() for one in value.split(",") if one.strip())


Share = Annotated[float, Field(ge=0, le=1)]
Bounds = Annotated[tuple[int, int], BeforeValidator(_bounds)]


class Rates(BaseModel):
    """What happens how often; all of it can be changed while calls go on.

    Attributes:
        answer: the share of calls that are answered. Of this and the next three, those given hold,
            and the others share the rest as 14 : 2 : 2 : 1.
        busy: that find the line busy.
        no_answer: that ring until they are given up.
        failed: that fail without ringing.
        refused: the share of requests that are refused for the number's sake; nothing is begun.
        too_many: that are refused because there were too many.
        unsure: that are done, and whose reply never comes.
        cut: that are done, and whose reply is cut in the middle.
        broken: that are answered with an error of the provider's, and not done.
        away: whether the provider does nothing at all.
        accept: the share of people who press 1, or write 1; shared as above, 10 : 6 : 3 : 1.
        decline: who press 2.
        silent: who press nothing.
        wrong: who press 9.
        hang_up: the share of those who answer that hang up in the middle.
        undelivered: the share of messages that do not arrive.
        ring: how long it rings before it is answered, in ms.
        talk: how long a call lasts whose script asks nothing, in ms.
        think: how long people take to press a key or to write, in ms.
        reply: how long each reply to a request takes, in ms.
        post_lost: the share of webhooks that never arrive.
        post_late: that are late, by `late`.
        post_twice: that come twice.
        post_disordered: that come after the next one of the same call or message.
        late: how late the late ones are, in ms.
        post_tries: how often a webhook is tried that is refused or not answered.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    answer: Share | None = None
    busy: Share | None = None
    no_answer: Share | None = None
    failed: Share | None = None
    refused: Share = 0
    too_many: Share = 0
    unsure: Share = 0
    cut: Share = 0
    broken: Share = 0
    away: bool = False
    accept: Share | None = None
    decline: Share | None = None
    silent: Share | None = None
    wrong: Share | None = None
    hang_up: Share = 0
    undelivered: Share = 0
    ring: Bounds = (1_000, 20_000)
    talk: Bounds = (20_000, 240_000)
    think: Bounds = (1_000, 8_000)
    reply: Span = 0
    post_lost: Share = 0
    post_late: Share = 0
    post_twice: Share = 0
    post_disordered: Share = 0
    late: Bounds = (5_000, 120_000)
    post_tries: int = Field(default=1, ge=1, le=20)

    def model_post_init(self, _context: object, /) -> None:
        """Refuse shares that cannot all be.

        Raises:
            ValueError: they are too much together, or too little.
        """
        self.ends()
        self.presses()
        if sum(self.unusual().values()) > 1 + _NOISE:
            message = f"{', '.join(self.unusual())} are more than 1 together"
            raise ValueError(message)

    def changed(self, written: Mapping[str, object]) -> Rates:
        """These rates with some changed.

        Args:
            written: the new ones. Of shares that are 1 together, those that are not given share the
                rest again.

        Raises:
            InvalidValue: they are unknown, or cannot be.
        """
        new = read_table("rates", Rates, written)
        given = {name: getattr(new, name) for name in new.model_fields_set}
        for group in (ENDS, PRESSES):
            if not group.keys().isdisjoint(given):
                given = dict.fromkeys(group) | given
        merged = {name: getattr(self, name) for name in Rates.model_fields} | given
        made = Rates.model_construct(**merged)
        try:
            made.model_post_init(None)
        except ValueError as error:
            message = f"rates: {error}"
            raise InvalidValue(message) from None
        return made

    def ends(self) -> Mapping[str, float]:
        """The share of each end of calls; 1 together."""
        return _shared(self, ENDS)

    def presses(self) -> Mapping[str, float]:
        """The share of each answer of people; 1 together."""
        return _shared(self, PRESSES)

    def unusual(self) -> Mapping[str, float]:
        """The share of each sort of requests that are not simply done."""
        return {
            "refused": self.refused,
            "too_many": self.too_many,
            "unsure": self.unsure,
            "cut": self.cut,
            "broken": self.broken,
        }


class SimulatedSettings(Rates):
    """`[telephony.simulated]`.

    Attributes:
        seed: of all that is drawn.
        speed: how many times faster than real time it goes.
        key: signs webhooks; empty for one that only this process knows.
        numbers: that calls can be made from; empty for any.
        channels: how many calls each number carries at once, if set.
        inbound_url: receives inbound messages; None for no webhooks.
    """

    seed: int = 1
    speed: float = Field(default=1, gt=0, le=1_000_000)
    key: str = Field(default="", repr=False)
    numbers: Annotated[tuple[Phone, ...], BeforeValidator(_several)] = ()
    channels: dict[Phone, Annotated[int, Field(ge=1)]] = Field(default_factory=dict[str, int])
    inbound_url: str | None = None


_NOISE = 1e-9


def _shared(rates: Rates, usual: Mapping[str, float]) -> Mapping[str, float]:
    given = {name: getattr(rates, name) for name in usual}
    shares = {name: float(share) for name, share in given.items() if share is not None}
    left = 1 - sum(shares.values())
    others = {name: part for name, part in usual.items() if name not in shares}
    if left < -_NOISE or (left > _NOISE and not others):
        message = f"{', '.join(usual)} are {sum(shares.values()):g} together, and not 1"
        raise ValueError(message)
    whole = sum(others.values()) or 1
    return shares | {name: max(left, 0) * part / whole for name, part in others.items()}
