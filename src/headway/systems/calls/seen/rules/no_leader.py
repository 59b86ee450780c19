"""no_leader: nobody does what time alone must bring about."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.duration import format_duration
from headway.server.alerts.alert import Severity
from headway.server.alerts.rule import Finding
from headway.systems.calls.seen.sight import Sight


class NoLeader:
    """Finds that ended leases wait for somebody who ends their runs.

    Any server or worker does that, and none has to be elected for it: so it is only looked whether
    it is done. Whether a server alerts at all is seen from outside alone: by
    `headway_alerts_leads`.
    """

    name = "no_leader"
    severity = Severity.P2

    def __init__(self, for_ms: int) -> None:
        """Makes the rule.

        Args:
            for_ms: how long a lease may have ended.
        """
        self._for_ms = for_ms

    def look(self, facts: Sight) -> Sequence[Finding]:
        """The chores, if nobody does them."""
        over = [facts.now - one.lease_until for one in facts.workers if one.running]
        lag = max(over, default=0)
        if lag < self._for_ms:
            return ()
        text = f"a worker has been lost for {format_duration(lag)}, and nobody has ended its runs"
        return (Finding(subject="chores", text=text),)
