"""What a lane carries, as far as an operator may set it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

import typer

from headway.contract.definitions import LaneSpec
from headway.core.duration import format_duration
from headway.core.errors import InvalidValue
from headway.runtime.lanes import LaneOptions, read_lane


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneValues:
    """What to change; None leaves it."""

    concurrency: Annotated[
        int | None, typer.Option(help="The most of its jobs in their handlers at once.")
    ] = None
    fair: Annotated[
        bool | None,
        typer.Option("--fair/--no-fair", help="Share starts between tenants."),
    ] = None
    weight: Annotated[
        list[str] | None,
        typer.Option(metavar="TENANT=N", help="Of tenants, all of them; may be repeated."),
    ] = None
    target: Annotated[
        str | None, typer.Option(help='Its latency target, due to start, as "30s".')
    ] = None
    max_backlog: Annotated[
        int | None, typer.Option(help="With more unfinished jobs a send is refused.")
    ] = None
    lease: Annotated[
        str | None, typer.Option(help='How long a run lives without a beat, as "30s".')
    ] = None

    def refuse_nothing(self, name: str) -> None:
        """Lets the values pass if one was given.

        Args:
            name: of the lane, for the message.

        Raises:
            InvalidValue: none was.
        """
        given = (self.concurrency, self.fair, self.target, self.max_backlog, self.lease)
        if all(one is None for one in given) and not self.weight:
            message = f"nothing to change about the lane {name!r} was given"
            hint = "--concurrency, --fair, --weight, --target, --max-backlog or --lease"
            raise InvalidValue(message, hint=hint)

    def change(self, now: LaneSpec) -> LaneSpec:
        """What the lane carries after the change.

        Args:
            now: what it carries.

        Returns:
            The same, with the values that were given.

        Raises:
            InvalidValue: a value is unusable.
        """
        fair = now.fair == "tenant" if self.fair is None else self.fair
        weights = dict(now.weights) if fair else {}
        if self.weight:
            weights = dict(_weight(one) for one in self.weight)
        wanted = {
            "concurrency": now.concurrency if self.concurrency is None else self.concurrency,
            "fair": "tenant" if fair else None,
            "weights": weights,
            "target": _span(self.target, now.target_ms),
            "max_backlog": now.max_backlog if self.max_backlog is None else self.max_backlog,
            "lease": _span(self.lease, now.lease_ms),
        }
        options = {name: value for name, value in wanted.items() if value is not None}
        return read_lane(now.name, cast("LaneOptions", options))


def _span(given: str | None, now_ms: int | None) -> str | None:
    return given if given is not None or now_ms is None else format_duration(now_ms)


def _weight(text: str) -> tuple[str, int]:
    tenant, equals, number = text.rpartition("=")
    if not equals or not (number.isascii() and number.isdigit()) or len(number) > len("2147483647"):
        message = f"the weight {text[:80]!r} is no TENANT=N"
        raise InvalidValue(message, hint="as --weight acme=2")
    return tenant, int(number)
