"""The cases: a slice of a campaign, single leads with free channels, and a full pool."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bench.slice.api_client import ApiClient
from bench.slice.check_service import checking
from bench.slice.plan import (
    MINUTE,
    PAUSED,
    RENTED,
    RENTED_LEFT,
    SECOND,
    ZONES,
    Lead,
    Plan,
)
from bench.slice.processes import Running, started
from bench.slice.use import Called, Use, joined, parts, use_of

CHECK_S = 0.2
RAMP = 3 * SECOND
WARM = 20
"""Number of first single leads that are reported separately."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """The parameters of a slice.

    Attributes:
        talk: Range of call durations, after half a second of setup.
        align: Whether to start so that hours open soon after.
    """

    leads: int
    numbers: int = 20
    channels: int = 5
    talk: str = "500ms,9500ms"
    align: bool = True


async def a_slice(folder: Path, store: str, asked: Asked) -> tuple[dict[str, Any], Use]:
    """Run a campaign in real time: hours open, a reseller is paused, a number loses channels."""
    with started(folder, store, asked.talk) as (carrier, server):
        api = ApiClient(server.url, carrier.url)
        async with checking(CHECK_S) as check:
            begins_at = _begin_at(align=asked.align)
            plan = Plan(
                numbers=asked.numbers,
                channels=asked.channels,
                leads=asked.leads,
                begins_at=begins_at,
            )
            for number in plan.all_numbers():
                await api.number(number, plan.channels)
            for name, spans in plan.hours().items():
                await api.template(name, check, spans)
            leads = plan.all_leads()
            ids = await api.send(leads, _written(begins_at))
            cpu = {}
            await asyncio.gather(
                _operate(api, plan),
                _cpu(begins_at + RAMP, 30.0, {"server": server, "carrier": carrier}, cpu),
                api.until_finished(len(ids)),
            )
        found, use = _results(
            plan,
            joined(await api.jobs(), ledger := await api.calls(), _by_id(ids, leads)),
            ledger,
        )
        await api.close()
        return {**found, "cpu_of_a_core": cpu}, use


async def single(folder: Path, store: str, n: int = 320) -> dict[str, Any]:
    """Measure single leads with free channels: from the due time to the call at the carrier.

    The first ones, which pay for loading and connecting, are reported separately.
    """
    with started(folder, store, "100ms") as (carrier, server):
        api = ApiClient(server.url, carrier.url)
        await api.number("+15550000001", 50)
        first_at = _now() + 3 * SECOND
        ids: list[str] = []
        leads = [
            Lead(
                phone=f"+1415{3_000_000 + k}",
                tz=ZONES[0],
                template="default",
                reseller="reseller-01",
                opens_at=0,
            )
            for k in range(n)
        ]
        for k, one in enumerate(leads):
            ids += await api.send([one], _written(first_at + 100 * k))
        await api.until_finished(n)
        calls = joined(await api.jobs(), await api.calls(), _by_id(ids, leads))
        await api.close()
        calls.sort(key=lambda one: one.due_at)
        late = [one.placed_at - one.due_at for one in calls]
        taken = [one.claimed_at - one.due_at for one in calls]
        first, late, taken = late[:WARM], late[WARM:], taken[WARM:]
        return {
            "leads": len(late),
            "first ms": first,
            "due to line taken ms": _spread(taken),
            "due to call ms": _spread(late),
        }


async def full(folder: Path, store: str, n: int = 10_000, seconds: float = 10.0) -> dict[str, Any]:
    """Measure the server's CPU while leads wait at a full pool, compared with an idle server."""
    with started(folder, store, "30m") as (carrier, server):
        api = ApiClient(server.url, carrier.url)
        await api.number("+15550000001", 5)
        await asyncio.sleep(5)
        idle = await _used(server, seconds)
        leads = [
            Lead(
                phone=f"+1415{3_000_000 + k}",
                tz=ZONES[0],
                template="default",
                reseller=f"reseller-{k % 50:02}",
                opens_at=0,
            )
            for k in range(n)
        ]
        await api.send(leads, None)
        while True:
            # All have been checked and wait at the pool when the CPU becomes idle.
            before = server.cpu_s()
            await asyncio.sleep(2)
            if server.cpu_s() - before < 0.2:
                break
        waiting = await _used(server, seconds)
        stats = await api.ask("GET", "/v1/stats")
        await api.close()
        return {"counts": stats["counts"], "idle_cpu": idle, "full_cpu": waiting}


def _results(plan: Plan, calls: Sequence[Called], ledger: dict[str, Any]) -> tuple[Any, Use]:
    at_carrier = use_of(plan, calls, lines=False)
    lines = use_of(plan, calls, lines=True)
    steady = use_of(plan, calls, lines=False, after_ms=RAMP)
    spans = parts(plan, calls)
    found = {
        "calls": len(calls),
        "backlog_s": round(at_carrier.span_ms / 1000, 1),
        "use_at_the_carrier": round(at_carrier.share, 5),
        "use_after_the_first_3_s": round(steady.share, 5),
        "use_of_lines": round(lines.share, 5),
        "most": at_carrier.most,
        "mean_call_ms": round(sum(one.ended_at - one.placed_at for one in calls) / len(calls)),
        "parts_ms": {name: _spread(found) for name, found in spans.items()},
        "webhooks": ledger["webhooks"],
        "requests": ledger["requests"],
        "faults": _faults(plan, calls, ledger),
    }
    return found, at_carrier


def _faults(plan: Plan, calls: Sequence[Called], ledger: dict[str, Any]) -> list[str]:
    faults = [f"called twice: {ref}" for ref in ledger["twice"]]
    if len(calls) != plan.leads:
        faults.append(f"{plan.leads} leads were sent, {len(calls)} were called")
    for one in calls:
        if one.claimed_at < max(one.due_at, one.lead.opens_at):
            faults.append(f"{one.lead.phone} was called before its time")
        # A line that was taken just before the pause is still used.
        if one.lead.reseller == PAUSED and (
            plan.paused[0] + SECOND < one.claimed_at < plan.paused[1] - SECOND
        ):
            faults.append(f"{one.lead.phone} of a paused reseller was called")
    for number, peak in ledger["peaks"].items():
        if peak > plan.channels:
            faults.append(f"{number} carried {peak} calls")
    return faults


async def _operate(api: ApiClient, plan: Plan) -> None:
    """Perform the operator's actions at their times."""
    for at, act in sorted(
        [
            (plan.paused[0], lambda: api.close_gate(f"tenant:{PAUSED}")),
            (plan.paused[1], lambda: api.open_gate(f"tenant:{PAUSED}")),
            (plan.shrunk[0], lambda: api.channels(RENTED, RENTED_LEFT)),
            (plan.shrunk[1], lambda: api.channels(RENTED, plan.channels)),
        ],
        key=lambda one: one[0],
    ):
        await _until(at)
        await act()


async def _cpu(
    from_at: int, seconds: float, whose: dict[str, Running], found: dict[str, float]
) -> None:
    await _until(from_at)
    before = {name: one.cpu_s() for name, one in whose.items()}
    await asyncio.sleep(seconds)
    for name, one in whose.items():
        found[name] = round((one.cpu_s() - before[name]) / seconds, 3)


async def _used(server: Running, seconds: float) -> float:
    before = server.cpu_s()
    await asyncio.sleep(seconds)
    return round((server.cpu_s() - before) / seconds, 4)


def _by_id(ids: Sequence[str], leads: Sequence[Lead]) -> dict[str, Lead]:
    return dict(zip(ids, leads, strict=True))


def _begin_at(*, align: bool) -> int:
    """Return a start in ten seconds or more; if aligned, hours open 25 seconds after it."""
    at = _now() + 10 * SECOND
    return -(-(at - 35 * SECOND) // MINUTE) * MINUTE + 35 * SECOND if align else at


async def _until(at: int) -> None:
    await asyncio.sleep(max(0.0, (at - _now()) / 1000))


def _now() -> int:
    return int(time.time() * 1000)


def _written(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, tz=UTC).isoformat()


def _spread(values: Sequence[int]) -> dict[str, float]:
    if not values:
        return {}
    ordered = sorted(values)
    return {
        "mean": round(sum(ordered) / len(ordered), 1),
        "p50": ordered[len(ordered) // 2],
        "p99": ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))],
        "most": ordered[-1],
    }
