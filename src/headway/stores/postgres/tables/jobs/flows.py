"""Flows and policies: what repeats from job to job."""

from __future__ import annotations

from headway.core.job import JobPolicy
from headway.stores.ledger.rows import FlowKey
from headway.stores.postgres.tables.jobs.base import JobsBase


class JobFlows(JobsBase):
    """The part of the job table that knows flows and policies by number."""

    def flow_number(self, key: FlowKey) -> int:
        """The flow's number; a new flow is given one."""
        return self._session.flows.number(key)

    def flow(self, number: int) -> FlowKey:
        """The flow of a number."""
        return self._session.flows.thing(number)

    def policy_number(self, policy: JobPolicy) -> int:
        """The policy's number; a new policy is given one."""
        return self._session.policies.number(policy)

    def policy(self, number: int) -> JobPolicy:
        """The policy of a number."""
        return self._session.policies.thing(number)
