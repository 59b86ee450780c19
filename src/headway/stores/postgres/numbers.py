"""The store's numbers: their keys, and the statements that read and write them."""

from __future__ import annotations

from headway.stores.sql.statement import (
    DEFINITIONS,
    EPOCH,
    EPOCH_AT,
    HIGH_WATER,
    IDENTITY,
    SCHEMA,
)

OLDEST_PROGRAM = -11
"""Programs that know at least this schema support the store."""
LANES = -12
"""Increases when a lane's settings are written, so that other processes reload them."""
SUSPECT = -13
"""1 after a process found the store replaced or restored, until a new epoch starts."""
BEHIND = -14
"""Increases when an exclusive step makes jobs wait that may precede others."""

LAG_MS = 1_000
"""How far the high-water mark may lag behind the time that an enqueue used."""
FOLD_EVERY, MOST_UNFOLDED = 64, 256
"""Numbers of claims and exclusive steps of a process after which counts are folded: by its next
exclusive step or sweep, and at the latest by a claim, whose jobs start later for it."""
TOKENS_SINCE = 2
"""The first schema with tokens; this program also supports older ones."""
CLOCK = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"
FACT = "WITH fact AS MATERIALIZED (SELECT key, n FROM @number WHERE key BETWEEN -15 AND -1)"


def same_store(place: int) -> str:
    """Return the condition that `fact` belongs to the store that this process knows.

    Args:
        place: number of the first of five parameters, which `Shared.known_facts` returns.
    """
    return (
        f"(SELECT n FROM fact WHERE key = {IDENTITY}) = ${place}::bigint"  # noqa: S608  (constants only)
        f" AND (SELECT n FROM fact WHERE key = {EPOCH}) = ${place + 1}::bigint"
        f" AND coalesce((SELECT n FROM fact WHERE key = {EPOCH_AT}), 0) = ${place + 2}::bigint"
        f" AND (SELECT n FROM fact WHERE key = {HIGH_WATER}) >= ${place + 3}::bigint"
        f" AND (SELECT n FROM fact WHERE key = {SCHEMA}) = ${place + 4}::bigint"
        f" AND coalesce((SELECT n FROM fact WHERE key = {SUSPECT}), 0) = 0"
    )


FACTS = (
    f"{FACT}"  # noqa: S608  (constants only)
    f" SELECT set_config('headway.now', greatest(coalesce($1::bigint, {CLOCK}),"
    f" (SELECT n FROM fact WHERE key = {HIGH_WATER}),"
    f" (SELECT $3::bigint FROM fact WHERE key = {EPOCH} AND n = $2::bigint))::text, true)::bigint,"
    f" {CLOCK}, (SELECT array_agg(key) FROM fact), (SELECT array_agg(n) FROM fact)"
)
PUT = (
    # An enqueue may have raised the high-water mark since this step read it.
    "INSERT INTO @number AS number SELECT * FROM unnest($1::bigint[], $2::bigint[])"  # noqa: S608  (a constant)
    f" ON CONFLICT (key) DO UPDATE SET n = CASE WHEN number.key = {HIGH_WATER}"
    " THEN greatest(number.n, excluded.n) ELSE excluded.n END"
)
RAISE_HIGH_WATER = (
    f"INSERT INTO @number AS number VALUES ({HIGH_WATER}, $1)"  # noqa: S608  (a constant)
    " ON CONFLICT (key) DO UPDATE SET n = excluded.n WHERE number.n < excluded.n"
)
COUNT = "INSERT INTO @delta VALUES ($1::bigint[], $2::bigint[])"
SERVER = "SELECT pg_postmaster_start_time()::text, current_database()::text"
"""Identifies the server process: a restarted or different server has another start time."""
_BRIEF_WAIT = "set_config('lock_timeout', '20', true)"
WAIT_BRIEFLY = f"SELECT {_BRIEF_WAIT}"
"""A transaction that has inserted the same key or id may stay open for long. A step that inserts it
again has to wait, but must not do so while it holds the exclusive lock, or its process's connection
for inserts.
"""

FITS = f"""
-- If an assumption does not hold, this fails, and with it the whole step.
{FACT}
INSERT INTO @delta SELECT $1::bigint[], $2::bigint[]
FROM (
    SELECT 1 / (
        coalesce((SELECT n FROM fact WHERE key = {DEFINITIONS}), 0) = $3::bigint
        AND coalesce((SELECT n FROM fact WHERE key = {LANES}), 0) = $4::bigint
        AND (SELECT n FROM fact WHERE key = {IDENTITY}) = $5::bigint
        AND (SELECT n FROM fact WHERE key = {EPOCH}) = $6::bigint
        AND coalesce((SELECT n FROM fact WHERE key = {HIGH_WATER}), 0) >= $7::bigint
        AND greatest(
            (SELECT n FROM fact WHERE key = {HIGH_WATER}), coalesce($8::bigint, {CLOCK})
        ) - $9::bigint < 2000
    )::int AS fits) AS guard
WHERE fits = 1 AND {_BRIEF_WAIT} <> '' RETURNING {CLOCK}
"""  # noqa: S608  (constants only)
FOLDED = 5_000
"""Maximum number of changes of counts that are folded at once."""
FOLD = (
    "WITH gone AS (DELETE FROM @delta WHERE ctid = ANY (ARRAY("  # noqa: S608  (a constant)
    f"SELECT ctid FROM @delta LIMIT {FOLDED})) RETURNING keys, ns)"
    " INSERT INTO @number AS number"
    " SELECT key, sum(n) FROM gone CROSS JOIN LATERAL unnest(keys, ns) AS one (key, n)"
    " GROUP BY key ON CONFLICT (key) DO UPDATE SET n = number.n + excluded.n"
)
