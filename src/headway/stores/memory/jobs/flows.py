"""Flows and policies, which many jobs share."""

from __future__ import annotations

from headway.core.job import JobPolicy
from headway.stores.ledger.rows import FlowKey
from headway.stores.memory.jobs.base import JobsBase


class JobFlows(JobsBase):
    """The part of the job table with flows and policies by number."""

    # Numbers are never reused: one that an undone step assigned stays unused.

    def flow_number(self, key: FlowKey) -> int:
        number = self._flows.get(key)
        if number is None:
            number = self._flows[key] = len(self._flow_keys)
            self._flow_keys.append(key)
        return number

    def flow(self, number: int) -> FlowKey:
        return self._flow_keys[number]

    def policy_number(self, policy: JobPolicy) -> int:
        number = self._policies.get(policy)
        if number is None:
            number = self._policies[policy] = len(self._policy_list)
            self._policy_list.append(policy)
        return number

    def policy(self, number: int) -> JobPolicy:
        return self._policy_list[number]
