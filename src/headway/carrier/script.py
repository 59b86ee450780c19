"""The script of the simulated network: what people do, and how each call, message and webhook ends.

How often, the table [telephony.simulated] says. All is drawn from the seed, the number that is
called and how often it was called before, never from a clock: the same seed gives the same day.
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
"""The default proportions of people's answers."""


def _read_bounds(value: object) -> object:
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
        least, most = (parse_duration(_strip(one)) for one in both)
    else:
        least = most = parse_duration(value)
    if least > most:
        message = "the least comes first"
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
        """Return these rates with some changed.

        Of shares that are 1 together, those that are not given share the rest again.

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
        """Return the share of each end of calls; 1 together."""
        return _shared(self, ENDS)

    def presses(self) -> Mapping[str, float]:
        """Return the share of each answer of people; 1 together."""
        return _shared(self, PRESSES)

    def unusual(self) -> Mapping[str, float]:
        """Return the share of each sort of request that is not simply done."""
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
        message = f"{', '.join(usual)} are {sum(shares.values()):g} together, and not 1"
        raise ValueError(message)
    whole = sum(others.values()) or 1
    return shares | {name: max(left, 0) * part / whole for name, part in others.items()}


class Answer(StrEnum):
    """What a person does; the last ones are outcomes at the provider."""

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


KEYS = {Answer.ACCEPT: "1", Answer.DECLINE: "2", Answer.WRONG: "9"}
"""What is pressed, or written."""


def _several(value: object) -> object:
    return (value,) if isinstance(value, str) else value


Seconds = Annotated[float, Field(ge=0, le=10_000_000)]


class Person(BaseModel):
    """What the person at one number does; whatever is None is drawn as for other numbers.

    Attributes:
        answers: to the first call or message, the second, and so on; the last goes on.
        after_s: how long the person takes to press a key or to write.
        ring_s: how long it rings before the person answers.
        talk_s: how long a call lasts whose script asks nothing.
        digits: the keys that are pressed, instead of the usual ones.
        text: what is written, instead of the usual.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    answers: Annotated[tuple[Answer, ...], BeforeValidator(_several)] = ()
    after_s: Seconds | None = None
    ring_s: Seconds | None = None
    talk_s: Seconds | None = None
    digits: Annotated[str, Field(pattern=r"^[0-9*#]*$")] | None = None
    text: str | None = None

    def answer(self, nth: int) -> Answer | None:
        """Return what is done after so many calls or messages before; None if it is to be drawn."""
        return self.answers[min(nth, len(self.answers) - 1)] if self.answers else None


class Taking(StrEnum):
    """The result of a request to the provider."""

    TAKEN = "taken"
    REFUSED = "refused"
    TOO_MANY = "too_many"
    UNSURE = "unsure"
    CUT = "cut"
    BROKEN = "broken"

    @property
    def done(self) -> bool:
        """Whether what was asked for is done, whatever is replied."""
        return self in {Taking.TAKEN, Taking.UNSURE, Taking.CUT}


@dataclass(frozen=True, kw_only=True, slots=True)
class Fate:
    """The simulated outcome of a call or a message.

    Attributes:
        taking: the result of the request.
        end: how a call ends, unless it is hung up before.
        ring_ms: how long it rings before it is answered.
        talk_ms: how long it lasts if its script asks nothing.
        think_ms: how long the person takes to press a key or to write.
        digits: the keys that are pressed; empty for none.
        text: what is written; empty for nothing.
        leaves_ms: when the person hangs up in the middle; None if not.
        arrives: whether a message does.
    """

    taking: Taking
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
_TAKINGS = frozenset(one.value for one in Taking)
_END_OF: Mapping[Answer, CallStatus] = {
    Answer.IGNORE: CallStatus.NO_ANSWER,
    Answer.BUSY: CallStatus.BUSY,
    Answer.FAILS: CallStatus.FAILED,
}


def fate_of(rates: Rates, person: Person, seed: int, to: str, nth: int, nth_since: int) -> Fate:
    """Draw the outcome of a call or a message: the same for the same arguments.

    Args:
        nth: how often it was called or written to before; from 0.
        nth_since: the same, counted since the person was configured.
    """

    def unit(purpose: str) -> float:
        return draw(f"{seed}:{to}:{nth}:{purpose}")

    answer = person.answer(nth_since)
    talk = _ms(person.talk_s, rates.talk, unit("talk"))
    key = _key(answer, rates, unit("press"))
    leaves = answer is Answer.HANGS_UP or (answer is None and unit("leaves") < rates.hang_up)
    return Fate(
        taking=_taking(answer, rates, unit("taking")),
        end=_end(answer, rates, unit("end")),
        ring_ms=_ms(person.ring_s, rates.ring, unit("ring")),
        talk_ms=talk,
        think_ms=_ms(person.after_s, rates.think, unit("think")),
        digits=person.digits if person.digits is not None and key else key,
        text=person.text if person.text is not None and key else key,
        leaves_ms=round(talk * unit("leaves at")) if leaves else None,
        arrives=answer is not Answer.FAILS and unit("arrives") >= rates.undelivered,
    )


def chosen(shares: Mapping[str, float], unit: float) -> str | None:
    """Return one of several, each as often as its share; None for what is left to 1.

    Args:
        unit: from 0 to below 1.
    """
    for name, share in shares.items():
        if unit < share:
            return name
        unit -= share
    return None


def _taking(answer: Answer | None, rates: Rates, unit: float) -> Taking:
    if answer is not None:
        return Taking(answer.value) if answer.value in _TAKINGS else Taking.TAKEN
    return Taking(chosen(rates.unusual(), unit) or Taking.TAKEN)


def _end(answer: Answer | None, rates: Rates, unit: float) -> CallStatus:
    if answer is None or answer.value in _TAKINGS:
        # A rest from rounding belongs to no share; the call is answered then.
        return _ENDS[chosen(rates.ends(), unit) or "answer"]
    return _END_OF.get(answer, CallStatus.COMPLETED)


def _key(answer: Answer | None, rates: Rates, unit: float) -> str:
    if answer is None or answer.value in _TAKINGS:
        answer = Answer(chosen(rates.presses(), unit) or Answer.SILENT)
    if answer in {Answer.TALKS, Answer.HANGS_UP}:
        answer = Answer.SILENT
    return KEYS.get(answer, "")


def _ms(fixed_s: float | None, bounds: tuple[int, int], unit: float) -> int:
    if fixed_s is not None:
        return round(fixed_s * 1000)
    least, most = bounds
    return least + round(unit * (most - least))
