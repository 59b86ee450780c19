"""The queues that are measured on each store, and whether they are available."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from bench.places.place import Ground
from bench.systems.node import NodeSystem
from bench.systems.overlay import Unavailable, put_on_path
from bench.systems.river import RiverSystem
from bench.systems.system import PythonSystem, System
from bench.systems.with_headway import Headway


class Entry(NamedTuple):
    """A queue in Python.

    Attributes:
        name: Name in the tables.
        package: Package whose version is reported.
        module: Module under bench.systems.
        peer: Class in the module.
    """

    name: str
    package: str
    module: str
    peer: str


PEERS: dict[str, tuple[Entry, ...]] = {
    "sqlite": (
        Entry("huey", "huey", "with_huey", "HueyOnSqlite"),
        Entry("litequeue", "litequeue", "with_litequeue", "LiteQueueOnSqlite"),
    ),
    "postgres": (
        Entry("pgqueuer", "pgqueuer", "with_pgqueuer", "PgQueuerOnPostgres"),
        Entry("saq", "saq", "with_saq", "SaqOnPostgres"),
        Entry("procrastinate", "procrastinate", "with_procrastinate", "ProcrastinateOnPostgres"),
    ),
    "redis": (
        Entry("huey", "huey", "with_huey", "HueyOnRedis"),
        Entry("dramatiq", "dramatiq", "with_dramatiq", "DramatiqOnRedis"),
        Entry("taskiq", "taskiq", "with_taskiq", "TaskiqOnRedis"),
        Entry("streaq", "streaq", "with_streaq", "StreaqOnRedis"),
        Entry("saq", "saq", "with_saq", "SaqOnRedis"),
        Entry("arq", "arq", "with_arq", "ArqOnRedis"),
        Entry("celery", "celery", "with_celery", "CeleryOnRedis"),
        Entry("rq", "rq", "with_rq", "RqOnRedis"),
    ),
}


class NodeEntry(NamedTuple):
    """A queue for Node.

    Attributes:
        name: Name of its package, and in the tables.
        module: Its file under bench/node, without the ending.
        setting: Description of its settings.
    """

    name: str
    module: str
    setting: str


NODE_PEERS: dict[str, tuple[NodeEntry, ...]] = {
    "sqlite": (),
    "postgres": (
        NodeEntry("graphile-worker", "graphile", "local queue of 500, 24 jobs at once"),
        NodeEntry("pg-boss", "pgboss", "batches of 1,000, NOTIFY and polling"),
    ),
    "redis": (NodeEntry("bullmq", "bullmq", "200 jobs at once, done ones removed"),),
}


class GoEntry(NamedTuple):
    """A queue in Go.

    Attributes:
        name: Name in the tables.
        system: Builds and returns it, if there is a toolchain.
    """

    name: str
    system: Callable[[], System]


GO_PEERS: dict[str, tuple[GoEntry, ...]] = {
    "sqlite": (),
    "postgres": (GoEntry(RiverSystem.name, RiverSystem),),
    "redis": (),
}


class Missing(NamedTuple):
    """A queue that is not measured, and why."""

    name: str
    why: str


def systems(ground: Ground, wanted: Collection[str]) -> tuple[list[System], list[Missing]]:
    """Return this engine and its peers on a store, and the peers that are unavailable.

    Args:
        ground: The store.
        wanted: Names of the peers to include.
    """
    found: list[System] = [PythonSystem(Headway(ground.store))]
    missing: list[Missing] = []
    for entry in entries(ground.store):
        if entry.name not in wanted:
            continue
        try:
            found.append(_load(entry, ground))
        except (ImportError, PackageNotFoundError, Unavailable) as reason:
            missing.append(Missing(entry.name, str(reason)))
    return found, missing


def names() -> list[str]:
    """Return the names of all known peers."""
    return sorted({entry.name for store in PEERS for entry in entries(store)})


def entries(store: str) -> Sequence[Entry | NodeEntry | GoEntry]:
    """Return all known peers on a store."""
    return (*PEERS[store], *NODE_PEERS[store], *GO_PEERS[store])


def _load(entry: Entry | NodeEntry | GoEntry, ground: Ground) -> System:
    if isinstance(entry, GoEntry):
        return entry.system()
    if isinstance(entry, NodeEntry):
        return NodeSystem(entry.name, entry.module, entry.setting)
    put_on_path(entry.name)
    peer = getattr(import_module(f"bench.systems.{entry.module}"), entry.peer)()
    if ground.store == "redis" and ground.version < peer.least_redis:
        need = ".".join(map(str, peer.least_redis))
        message = f"it needs Redis {need} or newer"
        raise ImportError(message)
    peer.version = version(entry.package)
    return PythonSystem(peer)
