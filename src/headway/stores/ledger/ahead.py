"""What a verb is about to read, announced so that a store can read it in one round trip.

Verbs read their tables row by row. If each read is a round trip to a server, a verb on a thousand
jobs would take thousands of them, so it announces its reads first; a store whose reads are local
ignores that. Only the number of round trips depends on it: what was not announced is read when it
is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from headway.stores.ledger.rows import FlowKey, JobRow


class Ahead(NamedTuple):
    """What a step will read.

    Attributes:
        keys: signal keys of runs, and the jobs of these runs.
        kept: signal keys for which events may be kept.
        events: by (scope, event).
        jobs: ids, with the permits that they hold.
        permits: ids of jobs whose permits alone are read.
        ends: jobs that may end: their keys, and the gates at which they hold or wait.
        runs: ids of jobs whose former runs are read.
        gates: names, with the jobs that are parked there or wait with a ticket.
        refits: gates whose unfit jobs are examined again.
        dedupe: enqueue keys, by (tenant, key).
        workers: ids of workers whose jobs are taken.
        flows: flows that may be new.
    """

    keys: Sequence[str] = ()
    kept: Sequence[str] = ()
    events: Sequence[tuple[str, str]] = ()
    jobs: Sequence[str] = ()
    permits: Sequence[str] = ()
    ends: Sequence[JobRow] = ()
    runs: Sequence[str] = ()
    gates: Sequence[str] = ()
    refits: Sequence[str] = ()
    dedupe: Sequence[tuple[str, str]] = ()
    workers: Sequence[str] = ()
    flows: Sequence[FlowKey] = ()


NOTHING = Ahead()
"""Nothing to read."""
