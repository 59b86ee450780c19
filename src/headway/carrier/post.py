"""The post of the simulated world: what becomes of each webhook."""

from __future__ import annotations

from dataclasses import dataclass

from headway.carrier.settings import Rates
from headway.core.draw import draw


@dataclass(frozen=True, kw_only=True, slots=True)
class Carriage:
    """What becomes of a webhook.

    Attributes:
        lost: it never arrives.
        late_ms: how late it is; 0 for not.
        twice: it comes once more.
        waits: it comes after the next one.
    """

    lost: bool = False
    late_ms: int = 0
    twice: bool = False
    waits: bool = False

    @property
    def prompt(self) -> bool:
        """Whether the next one waits for it."""
        return not (self.lost or self.late_ms or self.waits)


def carriage_of(rates: Rates, seed: int, purpose: str) -> Carriage:
    """What becomes of a webhook.

    Args:
        rates: what happens how often.
        seed: any whole number.
        purpose: what the webhook is told apart by.

    Returns:
        The same for the same arguments.
    """

    def unit(what: str) -> float:
        return draw(f"{seed}:{purpose}:{what}")

    late, least, most = unit("late") < rates.post_late, *rates.late
    return Carriage(
        lost=unit("lost") < rates.post_lost,
        late_ms=least + round(unit("late by") * (most - least)) if late else 0,
        twice=unit("twice") < rates.post_twice,
        waits=unit("disordered") < rates.post_disordered,
    )
