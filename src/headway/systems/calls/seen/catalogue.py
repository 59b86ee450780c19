"""The rules of calls."""

from __future__ import annotations

from headway.server.alerts.rule import Rule
from headway.systems.calls.seen.rules.depth_high import DepthHigh
from headway.systems.calls.seen.rules.dispatch_halted import DispatchHalted
from headway.systems.calls.seen.rules.intake_failing import IntakeFailing
from headway.systems.calls.seen.rules.latency_high import LatencyHigh
from headway.systems.calls.seen.rules.no_leader import NoLeader
from headway.systems.calls.seen.rules.no_number import NoNumber
from headway.systems.calls.seen.rules.one_tenant import OneTenant
from headway.systems.calls.seen.rules.orphan_webhook import OrphanWebhook
from headway.systems.calls.seen.rules.webhooks_lost import WebhooksLost
from headway.systems.calls.seen.rules.workers_dying import WorkersDying
from headway.systems.calls.seen.sight import Sight
from headway.systems.calls.seen.thresholds import Thresholds


def call_rules(at: Thresholds) -> tuple[Rule[Sight], ...]:
    """The rules, the worst first.

    Args:
        at: from which values on they speak.
    """
    return (
        DispatchHalted(at.dispatch_halted_more_than, at.dispatch_halted_for_ms),
        OrphanWebhook(at.orphan_webhook_more_than, at.orphan_webhook_within_ms),
        NoNumber(at.no_number_for_ms),
        IntakeFailing(
            at.intake_failing_above, at.intake_failing_least, at.intake_failing_within_ms
        ),
        LatencyHigh(at.latency_high_above_ms, at.latency_high_least, at.latency_high_for_ms),
        WebhooksLost(at.webhooks_lost_more_than, at.webhooks_lost_within_ms),
        WorkersDying(at.workers_dying_above, at.workers_dying_within_ms),
        DepthHigh(at.depth_high_above),
        NoLeader(at.no_leader_for_ms),
        OneTenant(at.one_tenant_above, at.one_tenant_least),
    )
