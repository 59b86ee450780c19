"""The script of the simulated network: what people do, and how each call and message ends.

All is drawn from the seed, the number that is called and how often it was called before, never
from a clock: the same seed gives the same day.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from headway.carrier.settings import Rates
from headway.core.draw import draw
from headway.systems.telephony.voice import CallStatus


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
        """What is done.

        Args:
            nth: how often the person was called or written to before; from 0.

        Returns:
            None if it is to be drawn.
        """
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
    """Draw the outcome of a call or a message.

    Args:
        nth: how often it was called or written to before; from 0.
        nth_since: the same, counted since the person was configured.

    Returns:
        The same for the same arguments.
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
    """One of several, each as often as its share says; None for what is left to 1.

    Args:
        shares: not more than 1 together.
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
