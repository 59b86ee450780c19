"""The script of the simulated network: what people do, and how calls, messages and webhooks end.

The settings [telephony.simulated] contain the rates. Everything is derived from the seed, the
called number and the number of earlier requests to it, never from a clock: the same seed always
gives the same results.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, cast

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.retry import draw
from headway.runtime.settings_table import Span, read_table
from headway.systems.telephony.phone import Phone
from headway.systems.telephony.voice import CallStatus

ENDS: Mapping[str, float] = {"answer": 14, "busy": 2, "no_answer": 2, "failed": 1}
"""The default proportions of how calls end."""

PRESSES: Mapping[str, float] = {"accept": 10, "decline": 6, "silent": 3, "wrong": 1}
"""The default proportions of how people react."""


def _read_bounds(value: object) -> object:
    """Read a minimum and a maximum duration, or one for both; a text separates them by a comma.

    Raises:
        ValueError: there are not two, or they are in the wrong order.
    """
    if isinstance(value, str) and "," in value:
        value = value.split(",")
    if isinstance(value, list | tuple):
        both = cast("list[object] | tuple[object, ...]", value)
        if len(both) != 2:
            message = "give a minimum and a maximum"
            raise ValueError(message)
        least, most = (parse_duration(_strip(one)) for one in both)
    else:
        least = most = parse_duration(value)
    if least > most:
        message = "the minimum must come first"
        raise ValueError(message)
    return least, most


def _strip(one: object) -> object:
    return one.strip() if isinstance(one, str) else one


def _numbers(value: object) -> object:
    if not isinstance(value, str):
        return value
    return tuple(one.strip() for one in value.split(",") if one.strip())


Share = Annotated[float, Field(ge=0, le=1)]
Bounds = Annotated[tuple[int, int], BeforeValidator(_read_bounds)]


class Rates(BaseModel):
    """Rates of outcomes and faults, which can be changed while calls are in progress.

    Attributes:
        answer: share of calls that are answered. If only some of this and the next three are set,
            the others share the rest in the proportions 14 : 2 : 2 : 1.
        busy: share of calls that find the line busy.
        no_answer: share of calls that are not answered.
        failed: share of calls that fail without ringing.
        refused: share of requests that are refused because of the number, without effect.
        too_many: share of requests that are refused because there were too many.
        unsure: share of requests that are carried out, but get no reply.
        cut: share of requests that are carried out, but whose reply is cut in the middle.
        broken: share of requests that fail with a server error, without effect.
        away: whether the provider is unavailable.
        accept: share of people who press or text 1. If only some of this and the next three are
            set, the others share the rest in the proportions 10 : 6 : 3 : 1.
        decline: share of people who press or text 2.
        silent: share of people who press or text nothing.
        wrong: share of people who press or text 9.
        hang_up: share of answered calls that the person hangs up in the middle.
        undelivered: share of messages that are not delivered.
        ring: ringing time of answered calls, ms.
        talk: length of calls whose script asks nothing, ms.
        think: how long people take to press a key or to write, ms.
        reply: delay of each reply to a request, ms.
        post_lost: share of webhooks that never arrive.
        post_late: share of webhooks that are late, by `late`.
        post_twice: share of webhooks that arrive twice.
        post_disordered: share of webhooks that arrive after the next one of the same call or
            message.
        late: delay of late webhooks, ms.
        post_tries: maximum number of tries of a webhook that gets no reply, or an error that is
            worth a retry.
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
        """Validate the sums of shares.

        Raises:
            ValueError: a sum is too high or too low.
        """
        self.ends()
        self.presses()
        if sum(self.unusual().values()) > 1 + _NOISE:
            message = f"the sum of {', '.join(self.unusual())} is above 1"
            raise ValueError(message)

    def changed(self, written: Mapping[str, object]) -> Rates:
        """Return these rates with some changed.

        If a share of a group is given whose sum is 1, its other shares are reset, and those not
        given share the rest.

        Raises:
            InvalidValue: a rate is unknown, or a value is not valid.
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
        """Return the share of each end of a call; the sum is 1."""
        return _shared(self, ENDS)

    def presses(self) -> Mapping[str, float]:
        """Return the share of each reaction of people; the sum is 1."""
        return _shared(self, PRESSES)

    def unusual(self) -> Mapping[str, float]:
        """Return the share of each abnormal result of a request."""
        names = ("refused", "too_many", "unsure", "cut", "broken")
        return {name: getattr(self, name) for name in names}


class SimulatedSettings(Rates):
    """`[telephony.simulated]`.

    Attributes:
        seed: seed of all draws.
        speed: how many times faster than real time it runs.
        key: key that signs webhooks; empty for a random one, which only this process knows.
        numbers: numbers that calls can be made from; empty for any.
        channels: number of channels by number; the ledger shows which numbers exceeded theirs.
        inbound_url: URL that receives inbound messages; None for no webhooks.
    """

    seed: int = 1
    speed: float = Field(default=1, gt=0, le=1_000_000)
    key: str = Field(default="", repr=False)
    numbers: Annotated[tuple[Phone, ...], BeforeValidator(_numbers)] = ()
    channels: dict[Phone, Annotated[int, Field(ge=1)]] = Field(default_factory=dict[str, int])
    inbound_url: str | None = Field(default=None, pattern=r"^https?://\S+$")


_NOISE = 1e-9


def _shared(rates: Rates, usual: Mapping[str, float]) -> Mapping[str, float]:
    given = {name: getattr(rates, name) for name in usual}
    shares = {name: float(share) for name, share in given.items() if share is not None}
    left = 1 - sum(shares.values())
    others = {name: part for name, part in usual.items() if name not in shares}
    if left < -_NOISE or (left > _NOISE and not others):
        message = f"the sum of {', '.join(usual)} is {sum(shares.values()):g}, not 1"
        raise ValueError(message)
    whole = sum(others.values()) or 1
    return shares | {name: max(left, 0) * part / whole for name, part in others.items()}


class Reaction(StrEnum):
    """What a person does; the last five are results at the provider."""

    ACCEPT = "accept"
    DECLINE = "decline"
    SILENT = "silent"
    WRONG = "wrong"
    TALKS = "talks"
    HANGS_UP = "hangs_up"
    IGNORE = "ignore"
    BUSY = "busy"
    FAILS = "fails"
    REFUSED = "refused"
    TOO_MANY = "too_many"
    UNSURE = "unsure"
    CUT = "cut"
    BROKEN = "broken"


KEYS = {Reaction.ACCEPT: "1", Reaction.DECLINE: "2", Reaction.WRONG: "9"}
"""Keys that are pressed, or texts that are written."""


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Seconds = Annotated[float, Field(ge=0, le=10_000_000)]


class Person(BaseModel):
    """What the person at one number does; values that are None are drawn as for other numbers.

    Attributes:
        answers: reactions to the first request, the second, and so on; the last one is repeated.
        after_s: how long the person takes to press a key or to write.
        ring_s: how long it rings before the person answers.
        talk_s: length of a call whose script asks nothing.
        digits: keys to press instead of the usual ones.
        text: text to write instead of the usual one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    answers: Annotated[tuple[Reaction, ...], BeforeValidator(_several)] = ()
    after_s: Seconds | None = None
    ring_s: Seconds | None = None
    talk_s: Seconds | None = None
    digits: Annotated[str, Field(pattern=r"^[0-9*#]*$")] | None = None
    text: str | None = None

    def answer(self, nth: int) -> Reaction | None:
        """Return the reaction after `nth` earlier requests; None if it is drawn."""
        return self.answers[min(nth, len(self.answers) - 1)] if self.answers else None


class RequestResult(StrEnum):
    """The result of a request to the provider."""

    TAKEN = "taken"
    REFUSED = "refused"
    TOO_MANY = "too_many"
    UNSURE = "unsure"
    CUT = "cut"
    BROKEN = "broken"


@dataclass(frozen=True, kw_only=True, slots=True)
class DrawnOutcome:
    """The simulated outcome of a call or a message.

    Attributes:
        request: result of the request.
        end: how the call ends, unless it is hung up before.
        ring_ms: how long it rings before it is answered.
        talk_ms: length of the call if its script asks nothing.
        think_ms: how long the person takes to press a key or to write.
        digits: keys that are pressed; empty for none.
        text: text that is written; empty for none.
        leaves_ms: when the person hangs up, after the answer; None if not.
        arrives: whether a message is delivered.
    """

    request: RequestResult
    end: CallStatus
    ring_ms: int
    talk_ms: int
    think_ms: int
    digits: str
    text: str
    leaves_ms: int | None
    arrives: bool


_ENDS: Mapping[str, CallStatus] = {
    "answer": CallStatus.COMPLETED,
    "busy": CallStatus.BUSY,
    "no_answer": CallStatus.NO_ANSWER,
    "failed": CallStatus.FAILED,
}
_REQUEST_RESULTS = frozenset(one.value for one in RequestResult)
_END_OF: Mapping[Reaction, CallStatus] = {
    Reaction.IGNORE: CallStatus.NO_ANSWER,
    Reaction.BUSY: CallStatus.BUSY,
    Reaction.FAILS: CallStatus.FAILED,
}


def draw_outcome(
    rates: Rates, person: Person, seed: int, to: str, nth: int, nth_since: int
) -> DrawnOutcome:
    """Draw the outcome of a call or a message, deterministically.

    Args:
        nth: number of earlier requests to the phone.
        nth_since: number of those since the person was configured.
    """

    # A purpose is part of the seed: under another name, the same seed would draw other outcomes.
    def unit(purpose: str) -> float:
        return draw(f"{seed}:{to}:{nth}:{purpose}")

    answer = person.answer(nth_since)
    talk = _ms(person.talk_s, rates.talk, unit("talk"))
    key = _key(answer, rates, unit("press"))
    leaves = answer is Reaction.HANGS_UP or (answer is None and unit("leaves") < rates.hang_up)
    return DrawnOutcome(
        request=_request_result(answer, rates, unit("taking")),
        end=_end(answer, rates, unit("end")),
        ring_ms=_ms(person.ring_s, rates.ring, unit("ring")),
        talk_ms=talk,
        think_ms=_ms(person.after_s, rates.think, unit("think")),
        digits=person.digits if person.digits is not None and key else key,
        text=person.text if person.text is not None and key else key,
        leaves_ms=round(talk * unit("leaves at")) if leaves else None,
        arrives=answer is not Reaction.FAILS and unit("arrives") >= rates.undelivered,
    )


def chosen(shares: Mapping[str, float], unit: float) -> str | None:
    """Return a name, chosen by the shares; None for the remainder to 1.

    Args:
        unit: random number from 0 to below 1.
    """
    for name, share in shares.items():
        if unit < share:
            return name
        unit -= share
    return None


def _request_result(answer: Reaction | None, rates: Rates, unit: float) -> RequestResult:
    if answer is not None:
        return (
            RequestResult(answer.value) if answer.value in _REQUEST_RESULTS else RequestResult.TAKEN
        )
    return RequestResult(chosen(rates.unusual(), unit) or RequestResult.TAKEN)


def _end(answer: Reaction | None, rates: Rates, unit: float) -> CallStatus:
    if answer is None or answer.value in _REQUEST_RESULTS:
        # A remainder from rounding belongs to no share; the call is then answered.
        return _ENDS[chosen(rates.ends(), unit) or "answer"]
    return _END_OF.get(answer, CallStatus.COMPLETED)


def _key(answer: Reaction | None, rates: Rates, unit: float) -> str:
    if answer is None or answer.value in _REQUEST_RESULTS:
        answer = Reaction(chosen(rates.presses(), unit) or Reaction.SILENT)
    if answer in {Reaction.TALKS, Reaction.HANGS_UP}:
        answer = Reaction.SILENT
    return KEYS.get(answer, "")


def _ms(fixed_s: float | None, bounds: tuple[int, int], unit: float) -> int:
    if fixed_s is not None:
        return round(fixed_s * 1000)
    least, most = bounds
    return least + round(unit * (most - least))
