"""Checks of a PostgreSQL server: version, durability, connections, transactions, permissions."""

from __future__ import annotations

from headway.cli.doctor import Finding, check_server_clock, ok, problem, warning
from headway.cli.terminal import rounded_duration
from headway.core.errors import StoreError
from headway.stores.postgres.failures import grants
from headway.stores.postgres.options import PostgresOptions, parse_url
from headway.stores.postgres.server_facts import ServerFacts, read_facts

OLDEST, NEWEST = 14, 18
"""Supported versions."""
OPEN_MS = 300_000
"""Duration of a transaction above which there is a warning."""
DEAD_ROWS = 100_000
A_PROCESS = 7
"""Connections per process: enqueue, decide, settle, heartbeat, read, look up names, listen."""


def check_postgres(url: str) -> list[Finding]:
    """Check a PostgreSQL store's server."""
    options = parse_url(url)
    try:
        seen = read_facts(options)
    except StoreError as error:
        return [problem("server", error.message, error.hint)]
    return [
        check_version(seen),
        *check_durability(seen),
        check_server_clock(seen.offset_ms),
        check_connections(seen),
        check_pooler(seen, options),
        *check_transactions(seen),
        check_vacuum(seen),
        check_rights(seen, options),
    ]


def check_version(seen: ServerFacts) -> Finding:
    """Check that the server's version is supported, and that it accepts writes."""
    major = seen.version // 10_000
    found = f"PostgreSQL {seen.version_text}"
    if major < OLDEST:
        return problem("server", f"{found} is too old", f"upgrade it to {OLDEST} or newer")
    if seen.standby:
        hint = "use the primary's host, or all hosts and ?target_session_attrs=read-write"
        return problem("server", f"{found} is a read-only standby", hint)
    if seen.settings.get("server_encoding") != "UTF8":
        hint = "create a database with ENCODING 'UTF8'"
        kept = seen.settings.get("server_encoding")
        return problem("server", f"the encoding of the database is {kept}", hint)
    if major > NEWEST:
        hint = f"Headway supports {OLDEST} to {NEWEST}: test the upgrade on a copy first"
        return warning("server", f"{found} is newer than the tested versions", hint)
    return ok("server", found)


def check_durability(seen: ServerFacts) -> list[Finding]:
    """Check that acknowledged writes survive a crash."""
    findings: list[Finding] = []
    for name in ("fsync", "full_page_writes"):
        if seen.settings.get(name) == "off":
            found = f"{name} is off: a machine crash may corrupt the database"
            findings.append(problem("durability", found, f"ALTER SYSTEM SET {name} = on"))
    if seen.settings.get("synchronous_commit") == "off":
        found = "synchronous_commit is off: a server crash loses the latest acknowledged writes"
        hint = "ALTER SYSTEM SET synchronous_commit = on, or ALTER ROLE or DATABASE where it is set"
        findings.append(warning("durability", found, hint))
    return findings or [ok("durability", "commits are on disk before they are acknowledged")]


def check_connections(seen: ServerFacts) -> Finding:
    """Check that more processes can connect."""
    read = seen.settings.get
    reserved = ("superuser_reserved_connections", "reserved_connections")
    most = int(read("max_connections") or 0) - sum(int(read(name) or 0) for name in reserved)
    found = f"{seen.connections} of {most} connections are open; a process uses {A_PROCESS}"
    if most - seen.connections < 2 * A_PROCESS:
        hint = "raise max_connections, or run fewer processes"
        return warning("connections", found, hint)
    return ok("connections", found)


def check_pooler(seen: ServerFacts, options: PostgresOptions) -> Finding:
    """Check whether a pooler is in between, and the URL says so."""
    if not seen.pooled:
        return ok("pooler", "no pooler between Headway and the server")
    if options.pooled:
        return ok("pooler", "behind a pooler; waiting workers poll 4 times a second")
    hint = (
        "add ?pooled=on to the URL unless it pools sessions; better, connect to the server directly"
    )
    return warning("pooler", "there is a pooler before the server", hint)


def check_transactions(seen: ServerFacts) -> list[Finding]:
    """Check for long transactions and unused slots, which keep dead rows from being removed."""
    findings = [
        warning(
            "transactions",
            f"{one.who} has kept a transaction open for {rounded_duration(one.since_ms)}",
            "dead rows accumulate in all tables: end it, or make its program commit",
        )
        for one in seen.holders
        if one.since_ms > OPEN_MS
    ]
    for slot in seen.idle_slots:
        hint = f"if it is not needed: SELECT pg_drop_replication_slot('{slot}')"
        findings.append(
            warning("transactions", f"the unused replication slot {slot} retains dead rows", hint)
        )
    return findings or [
        ok("transactions", f"none has been open for more than {rounded_duration(OPEN_MS)}")
    ]


def check_vacuum(seen: ServerFacts) -> Finding:
    """Check that dead rows are removed."""
    if seen.settings.get("autovacuum") == "off":
        return problem("vacuum", "autovacuum is off", "ALTER SYSTEM SET autovacuum = on")
    bloat = seen.bloat
    if bloat is not None and bloat.dead > max(DEAD_ROWS, bloat.live):
        found = f"the table {bloat.table} has {bloat.dead:,} dead rows and {bloat.live:,} live ones"
        hint = "find what keeps a transaction open, then VACUUM it"
        return warning("vacuum", found, hint)
    return ok("vacuum", "autovacuum is on")


def check_rights(seen: ServerFacts, options: PostgresOptions) -> Finding:
    """Check that the role has the permissions of a worker."""
    if not seen.missing:
        return ok("rights", f"the role {seen.role} can read and write")
    objects = list(seen.missing)
    what = ", ".join(objects[:3]) + (" …" if len(objects) > 3 else "")
    found = f"the role {seen.role} has no permission on {what}"
    return problem("rights", found, "; ".join(grants(options, seen.role)))
