"""Claims against a brute-force oracle over random histories."""

from __future__ import annotations

import asyncio

import pytest

from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance.rig import Rig
from tests.depth import DEPTH
from tests.oracle.history import History
from tests.oracle.weighted import WeightedHistory

LIMIT_S = 240


async def run(history_of: type[History], seed: int, moves: int) -> History:
    clock = FakeClock()
    rig = Rig(MemoryStore(clock=clock), clock)
    history = history_of(rig, seed, weighted=history_of is WeightedHistory)
    await history.begin()
    for move in range(moves):
        await history.move()
        await woken(history)
        if move % 15 == 0:
            await rig.check()
    await rig.check()
    return history


async def woken(history: History) -> None:
    """Check that a worker asleep since a claim that found no more is woken when a job can start."""
    world = history.world
    for lane, (seen, next_at) in list(history.idle.items()):
        asleep = next_at is None or world.now < next_at
        if asleep and any(world.fits(job) for job in world.due_jobs(lane)):
            async with asyncio.timeout(LIMIT_S):
                await history.rig.store.wait([lane], None, seen)
            del history.idle[lane]


def run_seeds(history_of: type[History], seeds: range, moves: int) -> None:
    for seed in seeds:
        try:
            asyncio.run(run(history_of, seed, moves))
        except BaseException as error:
            error.add_note(f"seed {seed}, {moves} moves")
            raise


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(16))
def test_claims_start_what_a_brute_force_oracle_starts_in_the_same_order(block: int) -> None:
    run_seeds(History, range(block * 10, block * 10 + 10), 80)


@pytest.mark.sampled
@pytest.mark.parametrize("block", range(6))
def test_weighted_keyed_gates_keep_their_order_and_leave_no_work_undone(block: int) -> None:
    run_seeds(WeightedHistory, range(block * 10, block * 10 + 10), 80)


@pytest.mark.slow
@pytest.mark.timeout(1200 * DEPTH)
@pytest.mark.parametrize("history_of", [History, WeightedHistory])
@pytest.mark.parametrize("block", range(4))
def test_long_histories_agree_with_the_oracle(history_of: type[History], block: int) -> None:
    size = 25 * DEPTH
    run_seeds(history_of, range(10_000 + block * size, 10_000 + (block + 1) * size), 300)
