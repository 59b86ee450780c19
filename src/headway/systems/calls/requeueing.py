"""Requeue leads that wait at gates that no longer apply to them, so that they get new gates."""

from __future__ import annotations

import logging

from headway.contract.operate import Acted, Edit, Verb
from headway.contract.store import read_pages
from headway.contract.views import JobsQuery, JobView, LanesQuery
from headway.core.errors import HeadwayError, StoreError, UnknownRecord
from headway.core.gates.spec import GateSpec
from headway.core.state import State
from headway.runtime.timing import Timing
from headway.systems.calls.catalogue import FRESH_S, CatalogueContents, gate_layout, pool_of
from headway.systems.calls.context import CallsContext
from headway.systems.calls.lead import CHECK, DIAL, LANE, LEAD, is_lead, read_args
from headway.systems.jobs import act

PAGE = 100
"""Maximum number of leads read and edited in one step; other steps wait for its end."""
RETRY_S = 5.0
LOOK_S = 60.0
"""Seconds between two looks for changes that another server made."""
SECOND_PASS_S = 330.0
"""Delay after which leads whose workers died in their dial wait again; see `kinds.LEAD_RETRY`."""

GatesByPool = dict[tuple[str, str], tuple[GateSpec, ...]]
"""The gates of a dial, by template and pool."""

_log = logging.getLogger("headway.calls")


async def watch(context: CallsContext) -> None:
    """Requeue waiting leads after changes of numbers and templates, until it is cancelled.

    The current limits of a pool, a rate or calling hours are read at each claim. But a lead gets
    its gates when it is checked, so when gates are added or removed, waiting leads whose gates
    would differ now are checked again. Changes of other servers are looked for as well, because one
    may be killed before it has requeued, or after it has declared the gates of a change that it did
    not commit: they are declared again each time.
    """
    timing = context.timing
    requeued: object = None
    while True:
        await timing.wait(context.changed, LOOK_S)
        try:
            contents = await context.catalogue.read()
            if requeued is not None:
                # Not at first, because the start of the server has just declared them.
                await context.declare_again()
            found = gate_layout(contents)
        except StoreError as error:
            _log.warning("requeueing postponed: error=%s", error)
            await timing.pause(RETRY_S)
            continue
        if found == requeued and not context.changed.is_set():
            continue
        requeued = found
        context.changed.clear()
        await _requeue_twice(context, timing)
        if not await timing.wait(context.changed, SECOND_PASS_S):
            await _requeue_twice(context, timing)


async def _requeue_twice(context: CallsContext, timing: Timing) -> None:
    try:
        await requeue(context)
        # Another process may have just checked a lead against its cached catalogue.
        await timing.pause(FRESH_S * 1.5)
        await requeue(context)
    except StoreError as error:
        _log.warning("requeueing postponed: error=%s", error)
        context.changed.set()
        await timing.pause(RETRY_S)


async def requeue(context: CallsContext) -> int:
    """Requeue the waiting leads whose gates differ from those that they would get now.

    Returns:
        The number of requeued leads.
    """
    contents = await context.catalogue.read()
    gates: GatesByPool = {}
    requeued = 0
    (lane,) = await context.store.read(LanesQuery(names=(context.kind.lane,)))
    for state in (State.WAITING, State.PARKED):
        if not lane.counts.get(state):
            # A listing would examine the jobs of all lanes.
            continue
        query = JobsQuery(kind=LEAD, lane=LANE, states=(state,), limit=PAGE)
        async for jobs in read_pages(context.store, query):
            stale = [job for job in jobs.rows if _is_stale(context, contents, job, gates)]
            requeued += await _send_to_checks(context, stale)
    if requeued:
        _log.info("leads requeued: leads=%d", requeued)
    return requeued


def _is_stale(
    context: CallsContext, contents: CatalogueContents, job: JobView, known: GatesByPool
) -> bool:
    """Return whether a lead waits at other gates than it would be given now.

    Args:
        known: gates by template and pool; extended.
    """
    if job.stage != DIAL or not is_lead(job):
        return False
    try:
        template = contents.template(read_args(job.args).template)
        key = template.name, pool_of(contents, template, job.tenant)
        gates = known.get(key)
        if gates is None:
            gates = known[key] = context.dial_gates(contents, template, job.tenant)
        wanted = context.kind.uses(DIAL, job.lane, job.tenant, job.args, gates)
    except UnknownRecord:
        return True
    except HeadwayError as error:
        _log.warning("lead not requeued: id=%s error=%s", job.id, error)
        return False
    return set(wanted) != set(job.gates)


async def _send_to_checks(context: CallsContext, jobs: list[JobView]) -> int:
    if not jobs:
        return 0
    edit = Edit(stage=CHECK, gates=context.check_uses(jobs[0].tenant, jobs[0].args))
    ids, reason = (job.id for job in jobs), "numbers or templates changed"
    replies = await act(context.store, Verb.EDIT, *ids, author=LEAD, reason=reason, edit=edit)
    return sum(reply.answer is Acted.DONE for reply in replies)
