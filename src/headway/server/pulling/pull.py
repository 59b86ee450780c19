"""A pull: a claim that may wait, and what it brought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from headway.contract.claims import Claimed
from headway.server.pulling.lease import LEASE_MS
from headway.server.pulling.wanted import Wanted


@dataclass(frozen=True, kw_only=True, slots=True)
class Pull:
    """A claim that may wait.

    Attributes:
        worker: as the store knows it.
        wanted: from which lanes.
        n: the most jobs, 1 to 1000.
        free: the most jobs with gates.
        lease_ms: how long the worker's runs live without a beat.
        request: the number of the claim; None lets the lobby number each try.
        after: where the worker's last claim stopped, by lane.
    """

    worker: str
    wanted: Wanted
    n: int = 1
    free: int = 1
    lease_ms: int = LEASE_MS
    request: int | None = None
    after: Mapping[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, kw_only=True, slots=True)
class Pulled:
    """What a pull brought.

    Attributes:
        worker: as the store knows it.
        request: the number of the claim that brought it; of one that brought nothing, for what it
            is worth.
        jobs: in the order to be started.
        now: the store's time; about, where this pull waited behind others and never claimed.
        lease_until: when the worker's runs lapse without a beat; None if this pull never claimed.
        next_at: when it is worth asking again; None for not before something happens.
        again: ask again at once.
        after: to be given to the worker's next pull.
        is_repeat: the jobs were handed out before, in answer to the same number.
    """

    worker: str
    request: int
    jobs: Sequence[Claimed]
    now: int
    lease_until: int | None
    next_at: int | None
    again: bool
    after: Mapping[str, int] = field(default_factory=dict[str, int])
    is_repeat: bool = False
