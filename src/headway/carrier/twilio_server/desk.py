"""The desk: what the carrier's routes work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.carrier.world import World


@dataclass(frozen=True, kw_only=True, slots=True)
class Desk:
    """What the carrier's routes work with.

    Attributes:
        world: in which calls are made.
        account: the only one.
        secrets: of each name that may ask.
    """

    world: World
    account: str
    secrets: Mapping[str, str] = field(repr=False)
