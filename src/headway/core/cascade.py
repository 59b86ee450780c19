"""A cascade: a job that is offered to one candidate after another until one accepts."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core.gates.spec import GateUse

CANDIDATE = "{candidate}"
"""Placeholder in a gate's name for the candidate whose turn it is."""


class Answer(StrEnum):
    """The answer to an offer."""

    ACCEPTED = "accepted"
    DECLINED = "declined"
    TIMEOUT = "timeout"
    UNFIT = "unfit"


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """A candidate that has had its turn."""

    candidate: str
    answer: Answer
    at: int
    reason: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cascade:
    """The candidates still to be asked, the current turn, and the answers of the others.

    Attributes:
        left: candidates that have not answered yet, in order, including the one whose turn it is.
        turn: candidate whose turn it is; empty before the first claim and between turns.
        asked: candidates that have had their turn, oldest first.
    """

    left: tuple[str, ...]
    turn: str = ""
    asked: tuple[Asked, ...] = ()

    def order(self) -> tuple[str, ...]:
        """Return the candidates to ask: first the one whose turn was cut short, then the others."""
        if self.turn and self.turn in self.left:
            return (self.turn, *(name for name in self.left if name != self.turn))
        return self.left

    def begin(self, candidate: str) -> Cascade:
        """Start a candidate's turn; a crash or release repeats it, never skips it."""
        return Cascade(left=self.left, turn=candidate, asked=self.asked)

    def end(self, answer: Answer, at: int, reason: str = "") -> Cascade:
        """End the current turn with an answer; its candidate is not asked again."""
        said = Asked(candidate=self.turn, answer=answer, at=at, reason=reason)
        left = tuple(name for name in self.left if name != self.turn)
        return Cascade(left=left, asked=(*self.asked, said))

    @property
    def accepted(self) -> str:
        """The candidate who accepted in the last turn; empty if none did or a new turn started."""
        last = self.asked[-1] if self.asked and not self.turn else None
        return last.candidate if last is not None and last.answer is Answer.ACCEPTED else ""

    def replace_left(self, left: tuple[str, ...]) -> Cascade:
        """Replace the candidates left to ask; the answers given so far stay.

        A turn that was cut short is repeated first if its candidate is among the new ones.

        Args:
            left: candidates, in the order to try them.
        """
        turn = self.turn if self.turn in left else ""
        return Cascade(left=left, turn=turn, asked=self.asked)

    def reset(self) -> Cascade:
        """Return the cascade as it was at the start: asked candidates first, then the others."""
        asked = tuple(dict.fromkeys(one.candidate for one in self.asked))
        return Cascade(left=(*asked, *(name for name in self.left if name not in asked)))

    @property
    def exhausted(self) -> bool:
        """Whether there is no candidate left to ask."""
        return not self.left


def in_turn(use: GateUse, candidate: str) -> GateUse:
    """Return the use of a gate in a candidate's turn.

    Args:
        use: the job's use of the gate; its name may contain `{candidate}`.
        candidate: the candidate whose turn it is; empty outside cascades.

    Returns:
        The use with `{candidate}` filled in; the same object if there is nothing to fill in.
    """
    if CANDIDATE not in use.name:
        return use
    return replace(use, name=use.name.replace(CANDIDATE, candidate))
