"""The cost of one job is counted on every store."""

from __future__ import annotations

import pytest
from rich.table import Table

from bench.costs import BATCH, add_rows, on_postgres, on_redis, on_sqlite

JOBS = 2 * BATCH


@pytest.mark.slow
@pytest.mark.parametrize("opened", [on_sqlite, on_postgres, on_redis])
async def test_costs_of_a_job_are_counted_by_step(opened) -> None:
    table = Table(*"abcdefg")
    with opened() as (place, read):
        await add_rows(table, "store", place, read, JOBS)
    steps, written, trips = ([*map(str, table.columns[at].cells)] for at in (1, 3, 4))
    assert len(steps) == 6
    assert all(int(one.replace(",", "")) > 200 for one in written)
    if opened is not on_sqlite:
        scheduled, alone = float(trips[0]), float(trips[5])
        assert scheduled < 5 / BATCH
        assert 1 <= alone < 1.5
