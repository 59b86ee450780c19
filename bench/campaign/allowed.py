"""What the gates allow: counted beside the engine, from the plan and from what was dialled."""

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
    """How many channels could be in use at a moment, if nothing were wasted.

    A second telling of the rules that shares no code with the engine: leads that have passed their
    check, whose zone is open, whose reseller is neither paused nor at its cap and whose phone may
    be called, as many as there are channels.
    """

    def __init__(self) -> None:
        self._open: dict[str, bool] = dict.fromkeys(OFFSETS, False)
        self._paused: set[str] = set()
        self._caps: dict[str, int] = {}
        self._busy: Counter[str] = Counter()
        self._channels = {name: sum(numbers.values()) for name, numbers in pools().items()}
        self._in_use: Counter[str] = Counter()
        self._checking = 0
        # Phones that asked once are counted; the few that asked often are looked at.
        self._alone: Counter[tuple[str, str]] = Counter()
        self._crowds: dict[str, Counter[tuple[str, str]]] = {}
        self._starts: dict[str, deque[int]] = {}
        self.lane_is_paused = False

    # ------------------------------------------------------------------------- what happens

    def pass_time(self, now: int) -> None:
        """The hours at this moment."""
        for tz, offset in OFFSETS.items():
            self._open[tz] = OPENS <= (now + offset) % DAY < CLOSES

    def check_begins(self, lead: Lead) -> None:
        """A check runs; it counts against its reseller's cap."""
        self._checking += 1
        self._busy[lead.reseller] += 1

    def check_ends(self, lead: Lead) -> None:
        """A lead has passed its check, and waits for its call."""
        self._checking -= 1
        self._busy[lead.reseller] -= 1
        self._wait(lead)

    def dialled(self, lead: Lead, now: int) -> None:
        """A lead was dialled: it waits no longer, and its phone was called."""
        self._wait(lead, -1)
        self._busy[lead.reseller] += 1
        self._in_use[pool_of(lead.reseller)] += 1
        self._starts.setdefault(lead.phone, deque()).append(now)

    def ended(self, lead: Lead) -> None:
        """A call is over."""
        self._busy[lead.reseller] -= 1
        self._in_use[pool_of(lead.reseller)] -= 1

    def pause(self, reseller: str, *, paused: bool) -> None:
        """An operator pauses or resumes a reseller."""
        (self._paused.add if paused else self._paused.discard)(reseller)

    def cap(self, reseller: str, most: int | None) -> None:
        """An operator caps a reseller, or ends that."""
        self._caps.pop(reseller, None)
        if most is not None:
            self._caps[reseller] = most

    def resize(self, pool: str, channels: int) -> None:
        """A pool has so many channels from now on."""
        self._channels[pool] = channels

    # ------------------------------------------------------------------------- what holds

    @property
    def in_use(self) -> int:
        """Channels in use."""
        return self._in_use.total()

    def is_paused(self, reseller: str) -> bool:
        """Whether a reseller is paused now."""
        return reseller in self._paused

    def room(self, reseller: str) -> int:
        """How many more of a reseller's leads may be checked or called at once."""
        most = self._caps.get(reseller)
        return 1_000_000 if most is None else max(0, most - self._busy[reseller])

    def is_open(self, tz: str) -> bool:
        """Whether a zone may be called now."""
        return self._open[tz]

    def rate_free(self, phone: str, now: int) -> int:
        """How often a phone may be called now."""
        starts = self._starts.get(phone)
        if not starts:
            return LIMIT
        while starts and starts[0] <= now - WINDOW:
            starts.popleft()
        return LIMIT - len(starts)

    def free(self, pool: str) -> int:
        """How many channels of a pool are free."""
        # A capacity that was lowered revokes nothing: what is on may be above it for a while.
        return max(0, self._channels[pool] - self._in_use[pool])

    def startable(self, now: int) -> int:
        """How many leads could start now."""
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
            # Those who ask often are at no reseller with a pool of its own.
            found[pool_of("")] += min(n, self.rate_free(phone, now)) if n else 0
        return sum(min(found[name], n) for name, n in left.items())

    # ------------------------------------------------------------------------- why one waits

    def closed_for_check(self, lead: Lead) -> dict[str, int | None]:
        """The gates that keep a lead from its check, and when each opens if that is known."""
        return self._for_all(lead) | ({CHECKS: None} if self._checking >= CHECKS_AT_ONCE else {})

    def closed_for_dial(self, lead: Lead, now: int) -> dict[str, int | None]:
        """The gates that keep a lead from its call, and when each opens if that is known."""
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
        """Whether a pool could serve nobody, however few are called."""
        return not self._channels[pool]

    def _wait(self, lead: Lead, n: int = 1) -> None:
        place = (lead.tz, lead.reseller)
        if lead.crowded:
            self._crowds.setdefault(lead.phone, Counter())[place] += n
        else:
            self._alone[place] += n

    def _may(self, tz: str, reseller: str) -> bool:
        return self._open[tz] and reseller not in self._paused
