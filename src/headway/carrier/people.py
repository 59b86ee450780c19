"""People of the simulated world: what somebody does who is called or written to."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


class Answer(StrEnum):
    """What somebody does; the last ones are the provider's doing."""

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
    """What the person at one number does; whatever is None is drawn as for everybody.

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
