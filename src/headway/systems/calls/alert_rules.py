"""The rules of calls: one row each, the worst first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.duration import format_duration
from headway.runtime.latency import percentile
from headway.runtime.settings_table import Span
from headway.server.alerts.rules import (
    Grows,
    Lasting,
    Lasts,
    Least,
    Now,
    Rule,
    Severity,
    Share,
    Texts,
    ThresholdTable,
)
from headway.systems.calls.overview import (
    CallsOverview,
    Event,
    LinePool,
    without_number,
)
from headway.systems.directory.tally import counts_of

FREE = 0.05
"""A share of the channels; where fewer are free, lines are what leads wait for."""


class Thresholds(ThresholdTable):
    """From which values on each rule speaks; spans are in ms, shares from 0 to 1.

    Attributes:
        runbooks: what stands before `#` and the rule's name in the link of an alert.
        dispatch_halted_more_than: how many overdue leads that could be called are tolerated.
        dispatch_halted_for_ms: how long there must be more.
        orphan_webhook_more_than: how many new ones are tolerated.
        orphan_webhook_within_ms: how long one is new.
        no_number_for_ms: how long leads must wait for a pool of which no number can be used.
        intake_failing_above: a share of the requests that bring leads.
        intake_failing_least: how many must have failed.
        intake_failing_within_ms: how long a request counts.
        latency_high_above_ms: of due to dial, waits behind gates left out, by 99 of 100.
        latency_high_least: how many calls must have been dialled in the last five minutes.
        latency_high_for_ms: how long it must last.
        webhooks_lost_more_than: how many new ones of a number are tolerated.
        webhooks_lost_within_ms: how long one is new.
        workers_dying_above: a share of the workers.
        workers_dying_within_ms: how long one that was lost counts.
        no_leader_for_ms: how long the runs of expired leases may wait until they are ended.
        one_tenant_above: a share of the overdue leads.
        one_tenant_least: how many leads must be overdue.
    """

    runbooks: str = "docs/how-to/calls-runbooks.md"
    dispatch_halted_more_than: Least = 100
    dispatch_halted_for_ms: Span = 120_000
    orphan_webhook_more_than: Least = 0
    orphan_webhook_within_ms: Span = 300_000
    no_number_for_ms: Span = 30_000
    intake_failing_above: Share = 0.01
    intake_failing_least: Least = 5
    intake_failing_within_ms: Span = 300_000
    latency_high_above_ms: Span = 5_000
    latency_high_least: Least = 10
    latency_high_for_ms: Span = 300_000
    webhooks_lost_more_than: Least = 0
    webhooks_lost_within_ms: Span = 900_000
    workers_dying_above: Share = 0.5
    workers_dying_within_ms: Span = 300_000
    depth_high_above: Least = 50_000
    no_leader_for_ms: Span = 30_000
    one_tenant_above: Share = 0.8
    one_tenant_least: Least = 100


def call_rules(at: Thresholds) -> tuple[Rule[CallsOverview], ...]:
    """Return the rules."""
    wrong = _Wrong(at)
    p0, p1, p2, p3 = Severity.P0, Severity.P1, Severity.P2, Severity.P3
    orphan_ms, lost_ms = at.orphan_webhook_within_ms, at.webhooks_lost_within_ms
    return (
        Lasts("dispatch_halted", p0, at.dispatch_halted_for_ms, wrong.dispatch_halted),
        Grows(
            "orphan_webhook", p1, orphan_ms, counts_of(Event.WEBHOOK_ORPHAN), wrong.orphan_webhook
        ),
        Lasts("no_number", p1, at.no_number_for_ms, wrong.no_number),
        Grows("intake_failing", p1, at.intake_failing_within_ms, _intakes, wrong.intake_failing),
        Lasts("latency_high", p1, at.latency_high_for_ms, wrong.latency_high),
        Grows("webhooks_lost", p2, lost_ms, counts_of(Event.WEBHOOK_LOST), wrong.webhooks_lost),
        Now("workers_dying", p2, wrong.workers_dying),
        Now("depth_high", p2, wrong.depth_high),
        Now("no_leader", p2, wrong.no_leader),
        Now("one_tenant", p3, wrong.one_tenant),
    )


@dataclass(frozen=True, slots=True)
class _Wrong:
    """What each rule finds wrong.

    Attributes:
        at: from which values on it speaks.
    """

    at: Thresholds

    def dispatch_halted(self, overview: CallsOverview) -> Lasting:
        """Leads are due, a line is free, every gate that they need is open, and none goes.

        What an operator has closed, and what waits for its hours, is not counted.
        """
        free = sum(pool.free for pool in overview.pools)
        ready = overview.backlog.ready
        if not free or ready <= self.at.dispatch_halted_more_than:
            return {}
        live = sum(worker.lease_until > overview.now for worker in overview.workers)
        workers = f"{live} workers serve the lane" if live else "no worker serves the lane"
        return {
            "dispatch": lambda ms: (
                f"{ready} leads could go and none does, though {free} channels are free, for "
                f"{format_duration(ms)} now; {workers}"
            )
        }

    def orphan_webhook(self, grown: Mapping[str, int]) -> Texts:
        """Proved webhooks of a provider are of calls that no lead has made."""
        within = format_duration(self.at.orphan_webhook_within_ms)
        return {
            provider: f"{new} webhooks of {provider} within {within} match no known call"
            for provider, new in grown.items()
            if new > self.at.orphan_webhook_more_than
        }

    def no_number(self, overview: CallsOverview) -> Lasting:
        """Leads wait for a pool of which no number can be used."""
        waits = overview.backlog.by_gate
        texts = {
            name: _without_number(pool, waits[name])
            for name, pool in without_number(overview.pools, waits).items()
        }
        return {name: lambda _, text=text: text for name, text in texts.items()}

    def intake_failing(self, grown: Mapping[str, int]) -> Texts:
        """Too large a share of the requests that bring leads is answered with 500 or more.

        What callers do wrong, such as a bad number, is not counted.
        """
        failed, every = grown.get(Event.INTAKE_FAILED, 0), grown.get(Event.INTAKE, 0)
        if (
            failed < max(1, self.at.intake_failing_least)
            or failed <= self.at.intake_failing_above * every
        ):
            return {}
        within = format_duration(self.at.intake_failing_within_ms)
        return {"intake": f"{failed} of {every} requests that brought leads failed within {within}"}

    def latency_high(self, overview: CallsOverview) -> Lasting:
        """Calls are dialled late while lines are free; waits behind gates are left out."""
        times = overview.dials.due_to_dial_ms
        p99 = percentile(times, 99)
        many = len(times) >= self.at.latency_high_least
        slow = p99 is not None and p99 > self.at.latency_high_above_ms
        if not (many and slow and _lines_are_free(overview)):
            return {}
        wanted = format_duration(self.at.latency_high_above_ms)
        text = (
            f"99 of 100 calls are dialled within {format_duration(p99 or 0)} of being "
            f"due, of {len(times)} lately; {wanted} is wanted"
        )
        return {"dial": lambda _: text}

    def webhooks_lost(self, grown: Mapping[str, int]) -> Texts:
        """The ends of calls from a number had to be asked for, or never became known."""
        within = format_duration(self.at.webhooks_lost_within_ms)
        return {
            number: f"the end of {new} calls from {number} was not reported within {within}; their "
            "lines were held until their deadlines"
            for number, new in grown.items()
            if new > self.at.webhooks_lost_more_than
        }

    def workers_dying(self, overview: CallsOverview) -> Texts:
        """Many workers of calls ended without taking leave; a stop or deploy is none."""
        within_ms, now = self.at.workers_dying_within_ms, overview.now
        live = sum(worker.lease_until > now for worker in overview.workers)
        lost = sum(
            # A worker that leaves ends its lease with its last beat.
            worker.seen_at < worker.lease_until <= now < worker.lease_until + within_ms
            for worker in overview.workers
        )
        if lost <= self.at.workers_dying_above * (live + lost):
            return {}
        within = format_duration(within_ms)
        return {"workers": f"{lost} of {live + lost} workers of calls were lost within {within}"}

    def depth_high(self, overview: CallsOverview) -> Texts:
        """More leads are due and wait than is tolerated."""
        overdue, above = overview.backlog.overdue, self.at.depth_high_above
        if overdue <= above:
            return {}
        return {"backlog": f"{overdue} leads are due and wait, above {above}"}

    def no_leader(self, overview: CallsOverview) -> Texts:
        """No server or worker ends the runs of expired leases.

        Any server or worker can do that without an election, so the rule only checks that it
        happens. Whether a server alerts at all can only be seen from outside: by
        `headway_alerts_leads`.
        """
        lag = max(
            (overview.now - one.lease_until for one in overview.workers if one.running), default=0
        )
        if lag < self.at.no_leader_for_ms:
            return {}
        lost = format_duration(lag)
        return {"chores": f"a worker has been lost for {lost}, and its runs have not been ended"}

    def one_tenant(self, overview: CallsOverview) -> Texts:
        """One reseller has nearly all leads that are due and wait, while others wait too.

        Where more than 500 wait, the share is that among the first and the last to come.
        """
        tenant, share = overview.backlog.largest
        if share <= self.at.one_tenant_above or overview.backlog.waiting < self.at.one_tenant_least:
            return {}
        others = len(overview.backlog.by_tenant) - 1
        return {
            tenant or "none": f"{share:.0%} of the leads that wait are of the reseller {tenant}, "
            f"and {others} others wait too"
        }


def _intakes(overview: CallsOverview) -> Mapping[str, int]:
    return {
        str(one): overview.totals.get((one, ""), 0) for one in (Event.INTAKE, Event.INTAKE_FAILED)
    }


def _without_number(pool: LinePool, waits: int) -> str:
    closed = next((line for line in pool.lines if line.closed), None)
    text = f"no number of {pool.name} can be used, and leads wait for it ({waits} were seen)"
    if not pool.lines:
        return f"{text}; it has none"
    if closed is not None:
        return f"{text}; {closed.number} is {closed.closed}"
    return f"{text}; all {len(pool.lines)} are without a channel"


def _lines_are_free(overview: CallsOverview) -> bool:
    capacity = sum(line.capacity for pool in overview.pools for line in pool.lines if line.usable)
    free = sum(pool.free for pool in overview.pools)
    return free > 0 and free >= FREE * capacity
