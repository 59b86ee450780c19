"""Checks of a Redis server: version, eviction, durability, memory, clock, permissions."""

from __future__ import annotations

from headway.cli.doctor import Finding, check_server_clock, ok, problem, warning
from headway.core.errors import HeadwayError
from headway.stores.redis.failures import RIGHTS
from headway.stores.redis.options import parse_url
from headway.stores.redis.server import OLDEST
from headway.stores.redis.server_facts import ServerFacts, read_facts

NEWEST = 9
"""The first version that has not been tested."""
SLOW_MS = 5.0
NEARLY_FULL = 0.9

_PROMISES = {
    "always": "each write is on disk before it is acknowledged",
    "everysec": "a machine crash may lose acknowledged writes of the last second or two",
    "no": "a machine crash may lose acknowledged writes of the last half minute",
}


def check_redis(url: str) -> list[Finding]:
    """Check a Redis store's server."""
    options = parse_url(url)
    try:
        seen = read_facts(options)
    except HeadwayError as error:
        return [problem("server", error.message, error.hint)]
    return [
        check_version(seen),
        check_eviction(seen),
        check_durability(seen),
        *check_device(seen),
        check_memory(seen),
        check_server_clock(seen.offset_ms),
        check_replicas(seen),
        check_latency(seen),
        check_rights(seen),
    ]


def check_version(seen: ServerFacts) -> Finding:
    """Check that the server's version is supported, and that it accepts writes."""
    server = seen.server
    version = ".".join(map(str, server.version))
    found = f"{server.name.capitalize()} {server.facts.get('valkey_version', version)}"
    if server.version < OLDEST:
        hint = f"upgrade it to {'.'.join(map(str, OLDEST))} or newer, or to Valkey"
        return problem("server", f"{found} is too old", hint)
    if server.is_replica:
        hint = "use the master's address, or the sentinels: redis+sentinel://…"
        return problem("server", f"{found} is a read-only replica", hint)
    if server.version[0] >= NEWEST:
        return warning("server", f"{found} is newer than the tested versions", "test it on a copy")
    return ok("server", found)


def check_eviction(seen: ServerFacts) -> Finding:
    """Check that it does not evict jobs when its memory is full."""
    policy = seen.server.eviction
    if policy != "noeviction":
        hint = "CONFIG SET maxmemory-policy noeviction, and in redis.conf"
        return problem("server", f"it evicts keys ({policy}): jobs would be lost", hint)
    return ok("eviction", "when memory is full, new jobs are refused and none is lost")


def check_durability(seen: ServerFacts) -> Finding:
    """Check which acknowledged writes survive a crash."""
    facts = seen.server.facts
    if facts.get("aof_enabled") != "1":
        saved = "only snapshots" if facts.get("rdb_last_save_time") else "nothing"
        found = f"no append-only file, {saved}: a restart loses all writes since then"
        hint = "set appendonly yes and appendfsync always (or everysec), or rebuild from a Source"
        return warning("durability", found, hint)
    fsync = seen.settings.get("appendfsync")
    if fsync is None:
        found = "append-only file; the server does not show appendfsync"
        return warning("durability", found, "check as a user that may run CONFIG GET")
    found = f"append-only file, appendfsync {fsync}: {_PROMISES.get(fsync, 'unknown')}"
    if fsync == "no":
        return warning("durability", found, "set appendfsync to always or everysec")
    return ok("durability", found)


def check_device(seen: ServerFacts) -> list[Finding]:
    """Check that its last writes to the device succeeded."""
    facts, hint = seen.server.facts, "free some space there, and check the server's log"
    names = {
        "rdb_last_bgsave_status": "the last snapshot failed",
        "aof_last_bgrewrite_status": "the last rewrite of the append-only file failed",
        "aof_last_write_status": "the last write to the append-only file failed",
    }
    failed = [text for name, text in names.items() if facts.get(name, "ok") != "ok"]
    return [problem("device", text, hint) for text in failed]


def check_memory(seen: ServerFacts) -> Finding:
    """Check that there is memory for new jobs."""
    facts = seen.server.facts
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if not most:
        return ok("memory", f"{used / 1e6:.1f} MB used, no configured limit")
    found = f"{used / 1e6:.1f} of {most / 1e6:.1f} MB used"
    if used > NEARLY_FULL * most:
        return warning(
            "memory", found, "raise maxmemory: when memory is full, new jobs are refused"
        )
    return ok("memory", found)


def check_replicas(seen: ServerFacts) -> Finding:
    """Check whether a failover could lose acknowledged writes."""
    facts = seen.server.facts
    replicas = int(facts.get("connected_slaves", 0))
    least = seen.settings.get("min-replicas-to-write", "0")
    # The server shows how many keep up only if it wants some.
    current = int(facts.get("min_slaves_good_slaves", replicas))
    if current < int(least):
        hint = "connect a replica, or CONFIG SET min-replicas-to-write 0"
        return problem("replicas", f"writes are refused: {current} of {least} keep up", hint)
    if not replicas:
        return ok("replicas", "none")
    found = f"{replicas}; writes are acknowledged before they are replicated"
    if least == "0":
        hint = "CONFIG SET min-replicas-to-write 1 limits what a failover can lose"
        return warning("replicas", found, hint)
    return ok("replicas", f"{found}, but refused with fewer than {least} replicas")


def check_latency(seen: ServerFacts) -> Finding:
    """Check the latency of calls."""
    found = f"an empty call takes {seen.ping_ms:.2f} ms"
    if seen.ping_ms > SLOW_MS:
        return warning("latency", found, "move the workers closer to it, or check SLOWLOG GET")
    return ok("latency", found)


def check_rights(seen: ServerFacts) -> Finding:
    """Check that the user has the permissions of a worker."""
    if seen.missing:
        return problem(
            "rights", f"the user {seen.user} has no permission for: {seen.missing}", RIGHTS
        )
    return ok("rights", f"the user {seen.user} can run scripts and subscribe")
