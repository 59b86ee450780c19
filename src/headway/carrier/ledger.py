"""The ledger of the simulated network: all calls and messages, and their totals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.carrier.script import DrawnOutcome
from headway.systems.telephony.texts import TextStatus
from headway.systems.telephony.voice import CallStatus


@dataclass(frozen=True, kw_only=True, slots=True)
class CallPlan:
    """The parameters of a call.

    Attributes:
        ref: the caller's reference; empty if there is none.
        to: E.164.
        from_: E.164.
        words: script of the answered call, in TwiML; None to fetch it from `words_url`.
        status_url: URL that receives the call's status; None for no reports.
        status_events: which of initiated, ringing, answered and completed are reported.
        ring_ms: maximum ringing time.
        limit_ms: maximum length of the answered call.
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
class PlacedCall:
    """A call that was placed.

    Attributes:
        nth: number of earlier requests to this phone.
        placed_at: ms UTC.
        answered_at: ms UTC.
        ended_at: when the line was free again, ms UTC.
        duration_s: simulated length of an ended call that was answered.
        heard: texts spoken to the called person.
        pressed: keys that were pressed, one entry per question.
        problems: errors of the application, as the provider would log them.
        notices: number of status webhooks so far.
    """

    sid: str
    plan: CallPlan
    outcome: DrawnOutcome
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
    """The parameters of a message; see `CallPlan`."""

    ref: str
    to: str
    from_: str
    text: str
    status_url: str | None = None


@dataclass(kw_only=True, slots=True)
class TextMessage:
    """An outbound or inbound message.

    Attributes:
        outcome: simulated outcome; None for inbound messages and replies to them.
        sent_at: ms UTC.
        inbound: whether a person wrote it.
        notices: number of status webhooks so far.
    """

    sid: str
    plan: TextPlan
    outcome: DrawnOutcome | None
    nth: int
    sent_at: int
    status: TextStatus = TextStatus.QUEUED
    inbound: bool = False
    notices: int = 0


class CarrierLedger:
    """All calls and messages of one network.

    Attributes:
        calls: calls by id, oldest first.
        requests: number of requests by result.
        posts: number of webhooks by result.
    """

    def __init__(self, channels: Mapping[str, int]) -> None:
        self.calls: dict[str, PlacedCall] = {}
        self.texts: dict[str, TextMessage] = {}
        self.requests: Counter[str] = Counter()
        self.posts: Counter[str] = Counter()
        self._channels = dict(channels)
        self._by_ref: dict[str, list[str]] = {}
        self._live: Counter[str] = Counter()
        self._peaks: Counter[str] = Counter()

    def began(self, call: PlacedCall) -> None:
        """Record a placed call."""
        number = call.plan.from_
        self.calls[call.sid] = call
        if call.plan.ref:
            self._by_ref.setdefault(call.plan.ref, []).append(call.sid)
        self._live[number] += 1
        self._peaks[number] = max(self._peaks[number], self._live[number])

    def ended(self, call: PlacedCall) -> None:
        """Record that a call has ended."""
        self._live[call.plan.from_] -= 1

    def by_ref(self, ref: str) -> PlacedCall | None:
        """Return the last call placed for a reference; None if there is none."""
        sids = self._by_ref.get(ref)
        return self.calls[sids[-1]] if sids else None

    def twice(self) -> dict[str, int]:
        """Return the number of calls by reference, for references with more than one."""
        return {ref: len(sids) for ref, sids in self._by_ref.items() if len(sids) > 1}

    def live(self) -> dict[str, int]:
        """Return the number of current calls by number, without idle numbers."""
        return {number: count for number, count in self._live.items() if count}

    def peaks(self) -> dict[str, int]:
        """Return the highest number of concurrent calls by number."""
        return dict(self._peaks)

    def crowded(self) -> dict[str, int]:
        """Return the peaks of the numbers that had more concurrent calls than channels."""
        most = self._channels
        return {one: peak for one, peak in self._peaks.items() if peak > most.get(one, peak)}
