"""What the gates allow: counted beside the engine, from the plan and from what was dialled."""

from __future__ import annotations

from collections import Counter, deque

from bench.campaign.plan import CLOSES, LIMIT, OFFSETS, OPENS, WINDOW, Lead

DAY = 86_400_000


class Allowed:
    """How many channels could be in use at a moment, if nothing were wasted.

    A second telling of the rules that shares no code with the engine: leads that have passed their
    check, whose zone is open, whose reseller is not paused and whose phone may be called, as many
    as there are channels.
    """

    def __init__(self) -> None:
        self._open: dict[str, bool] = dict.fromkeys(OFFSETS, False)
        self._paused: set[str] = set()
        # Phones that asked once are counted; the few that asked often are looked at.
        self._alone: Counter[tuple[str, str]] = Counter()
        self._crowds: dict[str, Counter[tuple[str, str]]] = {}
        self._starts: dict[str, deque[int]] = {}

    def pass_time(self, now: int) -> None:
        """The hours at this moment."""
        for tz, offset in OFFSETS.items():
            self._open[tz] = OPENS <= (now + offset) % DAY < CLOSES

    def ready(self, lead: Lead, n: int = 1) -> None:
        """A lead has passed its check, or (with -1) waits no longer."""
        place = (lead.tz, lead.reseller)
        if lead.crowded:
            self._crowds.setdefault(lead.phone, Counter())[place] += n
        else:
            self._alone[place] += n

    def dialled(self, lead: Lead, now: int) -> None:
        """A lead was dialled: it waits no longer, and its phone was called."""
        self.ready(lead, -1)
        self._starts.setdefault(lead.phone, deque()).append(now)

    def pause(self, reseller: str, *, paused: bool) -> None:
        """An operator pauses or resumes a reseller."""
        (self._paused.add if paused else self._paused.discard)(reseller)

    def is_paused(self, reseller: str) -> bool:
        """Whether a reseller is paused now."""
        return reseller in self._paused

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

    def startable(self, now: int, most: int) -> int:
        """How many leads could start now, counted to `most`."""
        found = 0
        for place, n in self._alone.items():
            found += n if self._able(place) else 0
            if found >= most:
                return most
        for phone, places in self._crowds.items():
            able = sum(n for place, n in places.items() if self._able(place))
            found += min(able, self.rate_free(phone, now)) if able else 0
        return min(found, most)

    def _able(self, place: tuple[str, str]) -> bool:
        return self._open[place[0]] and place[1] not in self._paused
