"""What the gates allow, computed without the engine from the plan and the calls."""

from __future__ import annotations

from collections import Counter, deque

from bench.campaign.plan import (
    CHECKS,
    CHECKS_AT_ONCE,
    CLOSES,
    HOUR,
    LANE,
    LIMIT,
    OFFSETS,
    OPENS,
    WINDOW,
    Lead,
    pool_of,
    pools,
)

DAY = 24 * HOUR


class Allowed:
    """How many channels could be in use at a time, if none were idle.

    This implements the rules independently of the engine's code: it counts leads that have passed
    their check, whose zone is open, whose reseller is neither paused nor at its cap and whose phone
    may be called, up to the number of channels.
    """

    def __init__(self) -> None:
        self._open: dict[str, bool] = dict.fromkeys(OFFSETS, False)
        self._paused: set[str] = set()
        self._caps: dict[str, int] = {}
        self._busy: Counter[str] = Counter()
        self._channels = {name: sum(numbers.values()) for name, numbers in pools().items()}
        self._in_use: Counter[str] = Counter()
        self._checking = 0
        # Leads with a phone of their own are only counted; shared phones are kept by phone.
        self._alone: Counter[tuple[str, str]] = Counter()
        self._crowds: dict[str, Counter[tuple[str, str]]] = {}
        self._starts: dict[str, deque[int]] = {}
        self.lane_is_paused = False

    # ------------------------------------------------------------------------------- events

    def pass_time(self, now: int) -> None:
        """Update which zones are open."""
        for tz, offset in OFFSETS.items():
            self._open[tz] = OPENS <= (now + offset) % DAY < CLOSES

    def check_begins(self, lead: Lead) -> None:
        """Start a check, which counts against its reseller's cap."""
        self._checking += 1
        self._busy[lead.reseller] += 1

    def check_ends(self, lead: Lead) -> None:
        """End a check: the lead waits for its call."""
        self._checking -= 1
        self._busy[lead.reseller] -= 1
        self._wait(lead)

    def dialled(self, lead: Lead, now: int) -> None:
        """Record that a lead was dialled."""
        self._wait(lead, -1)
        self._busy[lead.reseller] += 1
        self._in_use[pool_of(lead.reseller)] += 1
        self._starts.setdefault(lead.phone, deque()).append(now)

    def ended(self, lead: Lead) -> None:
        """End a call."""
        self._busy[lead.reseller] -= 1
        self._in_use[pool_of(lead.reseller)] -= 1

    def pause(self, reseller: str, *, paused: bool) -> None:
        """Pause or resume a reseller."""
        (self._paused.add if paused else self._paused.discard)(reseller)

    def cap(self, reseller: str, most: int | None) -> None:
        """Cap a reseller, or remove its cap."""
        self._caps.pop(reseller, None)
        if most is not None:
            self._caps[reseller] = most

    def resize(self, pool: str, channels: int) -> None:
        """Set the number of channels of a pool."""
        self._channels[pool] = channels

    # -------------------------------------------------------------------------------- state

    @property
    def in_use(self) -> int:
        """Channels in use."""
        return self._in_use.total()

    def is_paused(self, reseller: str) -> bool:
        """Whether a reseller is paused now."""
        return reseller in self._paused

    def room(self, reseller: str) -> int:
        """Return how many more leads of a reseller may be checked or called at once."""
        most = self._caps.get(reseller)
        return 1_000_000 if most is None else max(0, most - self._busy[reseller])

    def is_open(self, tz: str) -> bool:
        """Whether a zone may be called now."""
        return self._open[tz]

    def rate_free(self, phone: str, now: int) -> int:
        """Return how often a phone may be called now."""
        starts = self._starts.get(phone)
        if not starts:
            return LIMIT
        while starts and starts[0] <= now - WINDOW:
            starts.popleft()
        return LIMIT - len(starts)

    def free(self, pool: str) -> int:
        """Return the number of free channels of a pool."""
        # A lowered capacity ends no call: more channels may be in use for a while.
        return max(0, self._channels[pool] - self._in_use[pool])

    def startable(self, now: int) -> int:
        """Return how many leads could start now."""
        if self.lane_is_paused:
            return 0
        left = {name: self.free(name) for name in self._channels}
        if not any(left.values()):
            return 0
        able: Counter[str] = Counter()
        for (tz, reseller), n in self._alone.items():
            if n and self._open[tz] and reseller not in self._paused:
                able[reseller] += n
        found: Counter[str] = Counter()
        for reseller, n in able.items():
            found[pool_of(reseller)] += min(n, self.room(reseller))
        for phone, places in self._crowds.items():
            n = sum(n for (tz, who), n in places.items() if self._may(tz, who))
            # Leads with shared phones never belong to a reseller with its own pool.
            found[pool_of("")] += min(n, self.rate_free(phone, now)) if n else 0
        return sum(min(found[name], n) for name, n in left.items())

    # -------------------------------------------------------------------- why a lead waits

    def closed_for_check(self, lead: Lead) -> dict[str, int | None]:
        """Return the gates that block a lead's check, and when each opens, if known."""
        return self._for_all(lead) | ({CHECKS: None} if self._checking >= CHECKS_AT_ONCE else {})

    def closed_for_dial(self, lead: Lead, now: int) -> dict[str, int | None]:
        """Return the gates that block a lead's call, and when each opens, if known."""
        closed = self._for_all(lead)
        pool = pool_of(lead.reseller)
        if not self.free(pool):
            closed[pool] = None
        if not self._open[lead.tz]:
            into_day = (now + OFFSETS[lead.tz]) % DAY
            closed[f"calls.hours:default:{lead.tz}"] = now - into_day + OPENS
            if into_day >= CLOSES:
                closed[f"calls.hours:default:{lead.tz}"] = now - into_day + DAY + OPENS
        if self.rate_free(lead.phone, now) < 1:
            closed[f"calls.customer:{lead.phone}"] = self._starts[lead.phone][0] + WINDOW
        return closed

    def _for_all(self, lead: Lead) -> dict[str, int | None]:
        closed: dict[str, int | None] = {f"lane:{LANE}": None} if self.lane_is_paused else {}
        if self.is_paused(lead.reseller) or not self.room(lead.reseller):
            closed[f"tenant:{lead.reseller}"] = None
        return closed

    def is_empty(self, pool: str) -> bool:
        """Whether a pool has no channels at all."""
        return not self._channels[pool]

    def _wait(self, lead: Lead, n: int = 1) -> None:
        place = (lead.tz, lead.reseller)
        if lead.crowded:
            self._crowds.setdefault(lead.phone, Counter())[place] += n
        else:
            self._alone[place] += n

    def _may(self, tz: str, reseller: str) -> bool:
        return self._open[tz] and reseller not in self._paused
