"""The lanes that a claim asks for, by name or by pattern, and its lease."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headway.contract.claims import LaneOrder
from headway.core.errors import InvalidValue
from headway.core.naming import check_name

LEASE_MS = 30_000
"""How long a worker's runs live without a beat, if it does not say."""
SHORTEST_LEASE_MS, LONGEST_LEASE_MS = 1_000, 86_400_000


def check_lease(lease_ms: int) -> int:
    """Validate the length of a lease.

    Raises:
        InvalidValue: it is too short to be kept, or so long that a dead worker blocks its jobs.
    """
    if not SHORTEST_LEASE_MS <= lease_ms <= LONGEST_LEASE_MS:
        message = f"a lease of {lease_ms} ms"
        raise InvalidValue(message, hint="from 1s to 24h; 30s is usual")
    return lease_ms


MAX_WANTED = 256
"""The most lanes and patterns of one pull."""
MAX_WEIGHT = 1_000
"""The largest weight of a lane."""

_MAGIC = frozenset("*?[")


def is_pattern(name: str) -> bool:
    """Return whether a name stands for any number of lanes, such as `send_*`."""
    return not _MAGIC.isdisjoint(name)


def read_lanes(text: str) -> tuple[tuple[str, int], ...]:
    """Read lanes as one line says them, such as `send_*,enrich:2`.

    Args:
        text: names or patterns with commas between them, each with its weight after a colon.

    Returns:
        Each with its weight; 1 if none is said. What follows the last colon is a weight only if
        it is a number.
    """
    lanes: list[tuple[str, int]] = []
    for part in filter(None, (one.strip() for one in text.split(","))):
        name, colon, weight = part.rpartition(":")
        if colon and name and weight.isascii() and weight.isdigit() and len(weight) < 10:
            lanes.append((name, int(weight)))
        else:
            lanes.append((part, 1))
    return tuple(lanes)


def check_lanes(lanes: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], ...]:
    """Validate the lanes of a claim.

    Returns:
        The same, each once.

    Raises:
        InvalidValue: there are none or too many, or a name or a weight is unusable.
    """
    if not 1 <= len(lanes) <= MAX_WANTED:
        message = f"a pull from {len(lanes)} lanes"
        raise InvalidValue(message, hint=f"from 1 to {MAX_WANTED} names or patterns")
    for name, weight in lanes:
        check_name("lane", name)
        if not 1 <= weight <= MAX_WEIGHT:
            message = f"the weight of the lane {name[:80]!r} is {weight}"
            raise InvalidValue(message, hint=f"from 1 to {MAX_WEIGHT}")
    return tuple(dict(lanes).items())


@dataclass(frozen=True, kw_only=True, slots=True)
class LaneSelection:
    """The lanes that a pull asks for.

    Attributes:
        lanes: each name or pattern with its weight, each once; in strict order if `order` says so.
        order: "weighted" shares by weight, "strict" empties an earlier lane first.
        reach: which of the lanes that fit a pattern are the caller's; None for all. Names were
            checked before.
    """

    lanes: tuple[tuple[str, int], ...]
    order: LaneOrder = "weighted"
    reach: tuple[str, ...] | None = None

    @property
    def patterns(self) -> tuple[str, ...]:
        """Those of its lanes that are patterns."""
        return tuple(name for name, _ in self.lanes if is_pattern(name))

    @property
    def group(self) -> tuple[object, ...]:
        """Equal for pulls that the same jobs can serve."""
        names = tuple(name for name, _ in self.lanes)
        if self.order == "weighted":
            names = tuple(sorted(names))
        return names, self.order, self.reach if self.patterns else None

    def among(self, known: Iterable[str]) -> tuple[tuple[str, int], ...]:
        """Return the lanes that are meant, if these exist.

        Args:
            known: names of lanes; those that are wanted by name need not be among them.

        Returns:
            Each lane once, with the weight of the first that names or fits it; those that fit
            one pattern by name.
        """
        met: dict[str, int] = {}
        sorted_names: list[str] | None = None
        for name, weight in self.lanes:
            if not is_pattern(name):
                met.setdefault(name, weight)
                continue
            sorted_names = sorted(known) if sorted_names is None else sorted_names
            for lane in filter(self._fits(name), sorted_names):
                met.setdefault(lane, weight)
        return tuple(met.items())

    def meets(self, lane: str) -> bool:
        """Return whether a new lane matches one of the patterns."""
        return any(self._fits(pattern)(lane) for pattern in self.patterns)

    def _fits(self, pattern: str) -> Callable[[str], bool]:
        def fits(lane: str) -> bool:
            reach = self.reach
            covered = reach is None or any(fnmatchcase(lane, one) for one in reach)
            return covered and fnmatchcase(lane, pattern)

        return fits
