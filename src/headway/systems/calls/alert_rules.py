"""The alert rules of calls, most severe first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.duration import format_duration
from headway.runtime.latency import percentile
from headway.runtime.settings_table import Span
from headway.server.alerts.rules import (
    FindingTexts,
    Grows,
    Lasting,
    Lasts,
    Least,
    Now,
    Rule,
    Severity,
    Share,
    ThresholdTable,
)
from headway.systems.calls.overview import CallsOverview, CountedEvent, LinePool, without_number
from headway.systems.directory.tally import counts_of

FREE = 0.05
"""Share of free channels below which lines are what leads wait for."""


class Thresholds(ThresholdTable):
    """Thresholds of the rules; durations in ms, shares from 0 to 1.

    Attributes:
        runbooks: what precedes `#` and the rule's name in the link of an alert.
        dispatch_halted_more_than: tolerated number of leads that could be called.
        dispatch_halted_for_ms: how long there must be more.
        orphan_webhook_more_than: tolerated number of new orphan webhooks of one provider.
        orphan_webhook_within_ms: how long a webhook counts as new.
        no_number_for_ms: how long leads must wait for a pool without a usable number.
        intake_failing_above: tolerated share of failed requests among those with leads.
        intake_failing_least: minimum number of failed requests.
        intake_failing_within_ms: how long a request counts.
        latency_high_above_ms: tolerated 99th percentile from due to dial, without waits at gates.
        latency_high_least: minimum number of dials in the last five minutes.
        latency_high_for_ms: how long it must last.
        webhooks_lost_more_than: tolerated number of newly lost webhooks of one number.
        webhooks_lost_within_ms: how long a lost webhook counts as new.
        workers_dying_above: tolerated share of lost workers.
        workers_dying_within_ms: how long a lost worker counts.
        depth_high_above: tolerated number of overdue leads.
        no_leader_for_ms: how long the runs of a lost worker may stay unended.
        one_tenant_above: tolerated share of one reseller's leads among those waiting.
        one_tenant_least: minimum number of waiting leads.
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
    """Return the rules with these thresholds."""
    wrong = _Wrong(at)
    p0, p1, p2, p3 = Severity.P0, Severity.P1, Severity.P2, Severity.P3
    orphan_ms, lost_ms = at.orphan_webhook_within_ms, at.webhooks_lost_within_ms
    return (
        Lasts("dispatch_halted", p0, at.dispatch_halted_for_ms, wrong.dispatch_halted),
        Grows(
            "orphan_webhook",
            p1,
            orphan_ms,
            counts_of(CountedEvent.WEBHOOK_ORPHAN),
            wrong.orphan_webhook,
        ),
        Lasts("no_number", p1, at.no_number_for_ms, wrong.no_number),
        Grows("intake_failing", p1, at.intake_failing_within_ms, _intakes, wrong.intake_failing),
        Lasts("latency_high", p1, at.latency_high_for_ms, wrong.latency_high),
        Grows(
            "webhooks_lost", p2, lost_ms, counts_of(CountedEvent.WEBHOOK_LOST), wrong.webhooks_lost
        ),
        Now("workers_dying", p2, wrong.workers_dying),
        Now("depth_high", p2, wrong.depth_high),
        Now("no_leader", p2, wrong.no_leader),
        Now("one_tenant", p3, wrong.one_tenant),
    )


@dataclass(frozen=True, slots=True)
class _Wrong:
    """The check of each rule.

    Attributes:
        at: the thresholds.
    """

    at: Thresholds

    def dispatch_halted(self, overview: CallsOverview) -> Lasting:
        """Find leads that are due, have a free line and open gates, but are not called.

        Leads that wait for calling hours, or at gates that an operator has closed, do not count.
        """
        free = sum(pool.free for pool in overview.pools)
        ready = overview.backlog.ready
        if not free or ready <= self.at.dispatch_halted_more_than:
            return {}
        live = sum(worker.lease_until > overview.now for worker in overview.workers)
        workers = f"{live} workers serve the lane" if live else "no worker serves the lane"
        return {
            "dispatch": lambda ms: (
                f"{ready} leads could be called and {free} channels are free, but none has been "
                f"called for {format_duration(ms)}; {workers}"
            )
        }

    def orphan_webhook(self, grown: Mapping[str, int]) -> FindingTexts:
        """Find verified webhooks that belong to no known call, by provider."""
        within = format_duration(self.at.orphan_webhook_within_ms)
        return {
            provider: f"{new} webhooks of {provider} within {within} match no known call"
            for provider, new in grown.items()
            if new > self.at.orphan_webhook_more_than
        }

    def no_number(self, overview: CallsOverview) -> Lasting:
        """Find pools that leads wait for and that have no usable number."""
        waits = overview.backlog.by_gate
        texts = {
            name: _without_number(pool, waits[name])
            for name, pool in without_number(overview.pools, waits).items()
        }
        return {name: lambda _, text=text: text for name, text in texts.items()}

    def intake_failing(self, grown: Mapping[str, int]) -> FindingTexts:
        """Find too many requests with leads that failed with a status of 500 or more.

        Callers' errors, such as an invalid number, do not count.
        """
        failed, every = grown.get(CountedEvent.INTAKE_FAILED, 0), grown.get(CountedEvent.INTAKE, 0)
        if (
            failed < max(1, self.at.intake_failing_least)
            or failed <= self.at.intake_failing_above * every
        ):
            return {}
        within = format_duration(self.at.intake_failing_within_ms)
        return {"intake": f"{failed} of {every} requests with leads failed within {within}"}

    def latency_high(self, overview: CallsOverview) -> Lasting:
        """Find calls that are dialled late while lines are free, without waits at gates."""
        times = overview.dials.due_to_dial_ms
        p99 = percentile(times, 99)
        many = len(times) >= self.at.latency_high_least
        slow = p99 is not None and p99 > self.at.latency_high_above_ms
        if not (many and slow and _lines_are_free(overview)):
            return {}
        wanted = format_duration(self.at.latency_high_above_ms)
        text = (
            f"99% of the last {len(times)} calls were dialled within {format_duration(p99 or 0)} "
            f"of being due; the threshold is {wanted}"
        )
        return {"dial": lambda _: text}

    def webhooks_lost(self, grown: Mapping[str, int]) -> FindingTexts:
        """Find numbers whose calls' ends had to be queried, or never became known."""
        within = format_duration(self.at.webhooks_lost_within_ms)
        return {
            number: f"the ends of {new} calls from {number} were not reported within {within}; "
            "their lines were held until their deadlines"
            for number, new in grown.items()
            if new > self.at.webhooks_lost_more_than
        }

    def workers_dying(self, overview: CallsOverview) -> FindingTexts:
        """Find whether many workers of calls were lost; stopped ones do not count."""
        within_ms, now = self.at.workers_dying_within_ms, overview.now
        live = sum(worker.lease_until > now for worker in overview.workers)
        lost = sum(
            # A worker that stops regularly ends its lease with its last beat.
            worker.seen_at < worker.lease_until <= now < worker.lease_until + within_ms
            for worker in overview.workers
        )
        if lost <= self.at.workers_dying_above * (live + lost):
            return {}
        within = format_duration(within_ms)
        return {"workers": f"{lost} of {live + lost} workers of calls were lost within {within}"}

    def depth_high(self, overview: CallsOverview) -> FindingTexts:
        """Find a backlog that is larger than tolerated."""
        overdue, above = overview.backlog.overdue, self.at.depth_high_above
        if overdue <= above:
            return {}
        return {"backlog": f"{overdue} leads are due and waiting; the threshold is {above}"}

    def no_leader(self, overview: CallsOverview) -> FindingTexts:
        """Find runs of lost workers that no server or worker has ended.

        Any server or worker can do that without an election, so the rule only checks that it
        happens. Whether a server alerts at all can only be seen from outside, by the metric
        `headway_alerts_leads`.
        """
        lag = max(
            (overview.now - one.lease_until for one in overview.workers if one.running), default=0
        )
        if lag < self.at.no_leader_for_ms:
            return {}
        lost = format_duration(lag)
        return {"chores": f"a worker has been lost for {lost}, and its runs have not been ended"}

    def one_tenant(self, overview: CallsOverview) -> FindingTexts:
        """Find a reseller with nearly all waiting leads, while other resellers wait too.

        If more than 500 leads wait, the share is that of the first and last 250.
        """
        tenant, share = overview.backlog.largest
        if share <= self.at.one_tenant_above or overview.backlog.waiting < self.at.one_tenant_least:
            return {}
        others = len(overview.backlog.by_tenant) - 1
        return {
            tenant or "none": f"{share:.0%} of the waiting leads belong to the reseller {tenant}, "
            f"while leads of {others} others wait too"
        }


def _intakes(overview: CallsOverview) -> Mapping[str, int]:
    return {
        str(one): overview.totals.get((one, ""), 0)
        for one in (CountedEvent.INTAKE, CountedEvent.INTAKE_FAILED)
    }


def _without_number(pool: LinePool, waits: int) -> str:
    closed = next((line for line in pool.lines if line.closed), None)
    text = f"no number of {pool.name} can be used, and leads wait for it ({waits} were seen)"
    if not pool.lines:
        return f"{text}; it has none"
    if closed is not None:
        return f"{text}; {closed.number} is {closed.closed}"
    return f"{text}; all {len(pool.lines)} have 0 channels"


def _lines_are_free(overview: CallsOverview) -> bool:
    capacity = sum(line.capacity for pool in overview.pools for line in pool.lines if line.usable)
    free = sum(pool.free for pool in overview.pools)
    return free > 0 and free >= FREE * capacity
