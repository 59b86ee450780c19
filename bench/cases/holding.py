"""The cost of claims and enqueues with a million scheduled jobs, or many jobs behind a full gate.

The compared stores are open at the same time and measured in turns, operation by operation, so that
other load on the machine affects all of them equally.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from contextlib import AsyncExitStack

from bench.bench import Bench
from bench.held import MINUTE_MS, Held, settle_memory
from bench.places.place import Place
from headway import Slots
from headway.core.gates.spec import GateSpec, GateUse
from headway.runtime import event_loop
from headway.stores import open_store

HELD = "beside jobs held"
PARKED = "beside jobs behind one full gate"
CHUNK = 20_000


def by_held(bench: Bench) -> None:
    scale = bench.scale
    held = scale.held_postgres if bench.ground.store == "postgres" else scale.held
    few, many = f"{scale.few:,} scheduled", f"{held:,} scheduled"
    counts = {few: scale.few, many: held}
    with bench.fresh() as place:
        costs = event_loop.run(_by_held(bench, place, counts))
    _report(bench, HELD, costs, few, {many: 1.5})


async def _by_held(
    bench: Bench, place: Place, counts: Mapping[str, int]
) -> dict[str, dict[str, list[float]]]:
    async with AsyncExitStack() as stack:
        stores: dict[str, Held] = {}
        for name, count in counts.items():
            stores[name] = held = await _open(stack, place.beside(f"held{count}"))
            for done in range(0, count, CHUNK):
                await held.add(min(CHUNK, count - done), due_in_ms=30 * MINUTE_MS)
                if done and done % (10 * CHUNK) == 0:
                    bench.doing(f"{done:,} of {count:,} scheduled")
        settle_memory()
        for turn in range(bench.scale.claims):
            for held in stores.values():
                await held.measure_enqueue()
                await held.measure_claims()
            if not turn % 20:
                bench.doing(f"claims and enqueues, {turn} of {bench.scale.claims}")
        return {name: held.costs for name, held in stores.items()}


def by_parked(bench: Bench) -> None:
    none = "none behind a gate"
    keyed, shared = (f"{bench.scale.parked:,} behind a {word} gate" for word in ("keyed", "shared"))
    gates = {
        none: None,
        keyed: Slots("line:{phone}", 1),
        shared: Slots("line", 1),
    }
    with bench.fresh() as place:
        costs = event_loop.run(_by_parked(bench, place, gates))
    _report(bench, PARKED, costs, none, {keyed: 1.2, shared: 1.2})


async def _by_parked(
    bench: Bench, place: Place, gates: Mapping[str, GateSpec | None]
) -> dict[str, dict[str, list[float]]]:
    async with AsyncExitStack() as stack:
        stores: dict[str, Held] = {}
        for number, (name, spec) in enumerate(gates.items()):
            stores[name] = held = await _open(stack, place.beside(f"parked{number}"))
            if spec is not None:
                await _stand_behind(bench, held, spec, bench.scale.parked)
        settle_memory()
        for turn in range(bench.scale.claims):
            for held in stores.values():
                await held.measure_claims()
            if not turn % 20:
                bench.doing(f"claims, {turn} of {bench.scale.claims}")
        return {name: held.costs for name, held in stores.items()}


async def _stand_behind(bench: Bench, held: Held, spec: GateSpec, n: int) -> None:
    """Let one job take the gate's only permit, and add jobs that find it full."""
    await held.declare(spec)
    name = spec.name.replace("{phone}", "1")
    use = GateUse(name=name, template=spec.name, shared=spec.shared)
    await held.add(1, [use])
    await held.claim(1)
    for done in range(0, n, CHUNK):
        await held.add(min(CHUNK, n - done), [use])
        bench.doing(f"{min(n, done + CHUNK):,} of {n:,} behind {name}")
    # Each claim parks up to a thousand jobs; none of them starts.
    for _ in range(2 * n // 1_000 + 2):
        if await held.claim(1):
            message = "a job started behind a full gate"
            raise RuntimeError(message)


async def _open(stack: AsyncExitStack, url: str) -> Held:
    store = open_store(url)
    stack.push_async_callback(store.close)
    held = Held(store)
    await held.beat()
    return held


def _report(
    bench: Bench,
    case: str,
    costs: Mapping[str, Mapping[str, list[float]]],
    base: str,
    bounds: Mapping[str, float],
) -> None:
    for what in costs[base]:
        for name, each in costs.items():
            figure = bench.notebook.add(
                f"{what} {case}", name, "ms", [statistics.median(each[what])]
            )
            bench.show(figure, prefix=f"{what}: ")
        for name, bound in bounds.items():
            ratio = statistics.median(costs[name][what]) / statistics.median(costs[base][what])
            bench.goal(f"{what}, {name} against {base}", ratio, most=bound)
