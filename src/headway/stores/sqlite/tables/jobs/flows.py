"""Flows and policies, which many jobs share."""

from __future__ import annotations

from headway.core.job import JobPolicy
from headway.stores.ledger.rows import FlowKey
from headway.stores.sqlite.tables.jobs.base import JobsBase


class JobFlows(JobsBase):
    """The part of the job table with flows and policies by number."""

    def flow_number(self, key: FlowKey) -> int:
        return self._session.flows.number(key)

    def flow(self, number: int) -> FlowKey:
        return self._session.flows.thing(number)

    def policy_number(self, policy: JobPolicy) -> int:
        return self._session.policies.number(policy)

    def policy(self, number: int) -> JobPolicy:
        return self._session.policies.thing(number)
