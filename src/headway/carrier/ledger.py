"""The ledger of the simulated world: all calls and messages, and what a bill would show."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.carrier.script import Fate
from headway.systems.telephony.texts import TextStatus
from headway.systems.telephony.voice import CallStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class CallPlan:
    """What a call is placed with.

    Attributes:
        ref: the caller's own; empty if it gave none.
        to: E.164.
        from_: E.164.
        words: the script once the call is answered, in TwiML; None to fetch it.
        status_url: receives the call's status; None for no reports.
        status_events: which of initiated, ringing, answered and completed are reported.
        ring_ms: how long it may ring.
    """

    ref: str
    to: str
    from_: str
    words: str | None = None
    words_url: str | None = None
    words_method: str = "POST"
    status_url: str | None = None
    status_events: frozenset[str] = frozenset({"completed"})
    status_method: str = "POST"
    ring_ms: int = 60_000
    limit_ms: int = 14_400_000


@dataclass(kw_only=True, slots=True)
class Call:
    """A call that was placed.

    Attributes:
        plan: what it was placed with.
        nth: how often this number was called or written to before.
        placed_at: ms UTC; so are the next two.
        ended_at: when the line was free again.
        duration_s: of an ended call that was answered, by the world's own clock.
        heard: the texts spoken to the called person.
        pressed: the keys that were pressed, at each asking.
        problems: errors of the application, as the provider would log them.
        notices: the number of status webhooks so far.
    """

    sid: str
    plan: CallPlan
    fate: Fate
    nth: int
    placed_at: int
    status: CallStatus = CallStatus.QUEUED
    answered_at: int | None = None
    ended_at: int | None = None
    duration_s: int | None = None
    heard: list[str] = field(default_factory=list[str])
    pressed: list[str] = field(default_factory=list[str])
    problems: list[str] = field(default_factory=list[str])
    notices: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class TextPlan:
    """What a message is sent with; the fields are those of `CallPlan`."""

    ref: str
    to: str
    from_: str
    text: str
    status_url: str | None = None


@dataclass(kw_only=True, slots=True)
class Text:
    """A message, out or in.

    Attributes:
        plan: what it was sent with.
        fate: its simulated outcome; None of an inbound one.
        sent_at: ms UTC.
        inbound: whether a person wrote it.
        notices: the number of status webhooks so far.
    """

    sid: str
    plan: TextPlan
    fate: Fate | None
    nth: int
    sent_at: int
    status: TextStatus = TextStatus.QUEUED
    inbound: bool = False
    notices: int = 0


class Ledger:
    """All calls and messages of one world.

    Attributes:
        calls: by the provider's id, in the order in which they were placed.
        takings: the number of requests by result.
        posts: the number of webhooks by result.
    """

    def __init__(self, channels: Mapping[str, int]) -> None:
        self.calls: dict[str, Call] = {}
        self.texts: dict[str, Text] = {}
        self.takings: Counter[str] = Counter()
        self.posts: Counter[str] = Counter()
        self._channels = dict(channels)
        self._by_ref: dict[str, list[str]] = {}
        self._live: Counter[str] = Counter()
        self._peaks: Counter[str] = Counter()

    def began(self, call: Call) -> None:
        """Write down that a call was placed."""
        number = call.plan.from_
        self.calls[call.sid] = call
        if call.plan.ref:
            self._by_ref.setdefault(call.plan.ref, []).append(call.sid)
        self._live[number] += 1
        self._peaks[number] = max(self._peaks[number], self._live[number])

    def ended(self, call: Call) -> None:
        """Write down that a line is free again."""
        self._live[call.plan.from_] -= 1

    def by_ref(self, ref: str) -> Call | None:
        """Return the last call that was placed for a reference; None if there is none."""
        sids = self._by_ref.get(ref)
        return self.calls[sids[-1]] if sids else None

    def twice(self) -> dict[str, int]:
        """Return the references for which more than one call was placed, and how many."""
        return {ref: len(sids) for ref, sids in self._by_ref.items() if len(sids) > 1}

    def live(self) -> dict[str, int]:
        """Return how many calls each number carries now; numbers without any are left out."""
        return {number: count for number, count in self._live.items() if count}

    def peaks(self) -> dict[str, int]:
        """Return the most calls that each number ever carried at once."""
        return dict(self._peaks)

    def crowded(self) -> dict[str, int]:
        """Return the numbers that carried more calls at once than their channels, and how many."""
        most = self._channels
        return {one: peak for one, peak in self._peaks.items() if peak > most.get(one, peak)}
