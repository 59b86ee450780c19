"""The numbers of a gate that an operator may set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from headway.contract.definitions import SetGate
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue


@dataclass(frozen=True, kw_only=True, slots=True)
class GateNumbers:
    """What to change; None leaves it."""

    capacity: Annotated[int | None, typer.Option(help="Permits.")] = None
    limit: Annotated[int | None, typer.Option(help="Starts of a rate in a window.")] = None
    per: Annotated[str | None, typer.Option(help='The window of a rate, as "1h".')] = None
    member: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=N", help="A pool's members, all of them; may be repeated."),
    ] = None

    def change(self, name: str) -> SetGate:
        """The change of one gate.

        Args:
            name: of the gate.

        Returns:
            What to define.

        Raises:
            InvalidValue: nothing was given, the window is no span, or a member is no NAME=N.
        """
        if self.capacity is None and self.limit is None and self.per is None and not self.member:
            message = f"nothing to change about {name!r} was given"
            raise InvalidValue(message, hint="--capacity, --limit, --per or --member")
        return SetGate(
            name=name,
            capacity=self.capacity,
            limit=self.limit,
            per_ms=None if self.per is None else parse_duration(self.per),
            members=tuple(_member(one) for one in self.member) if self.member else None,
        )


def _member(text: str) -> tuple[str, int]:
    name, equals, number = text.rpartition("=")
    if not equals or not name or not number.isdecimal():
        message = f"the member {text[:80]!r} is no NAME=N"
        raise InvalidValue(message, hint="as --member +15550100=4")
    return name, int(number)
