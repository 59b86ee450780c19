"""The rules of the engine."""

from __future__ import annotations

from headway.server.alerts.facts import Facts
from headway.server.alerts.rule import Rule
from headway.server.alerts.rules.dead_jobs import DeadJobs
from headway.server.alerts.rules.horizon import Horizon
from headway.server.alerts.rules.lane_latency import LaneLatencyRule
from headway.server.alerts.rules.no_worker import NoWorker
from headway.server.alerts.rules.store_away import StoreAway
from headway.server.alerts.settings import AlertSettings


def rules(settings: AlertSettings) -> tuple[Rule[Facts], ...]:
    """The rules of the engine, also those that are off.

    Args:
        settings: with the values from which on they speak.
    """
    return (
        StoreAway(settings.store_away_for_ms),
        NoWorker(settings.no_worker_for_ms),
        LaneLatencyRule(settings.lane_latency_for_ms),
        DeadJobs(settings.dead_jobs_more_than, settings.dead_jobs_within_ms),
        Horizon(settings.horizon_within_ms),
    )
