"""The suite itself: it is complete, and no test hides another of the same name."""

from __future__ import annotations

from collections import Counter
from importlib import import_module
from pkgutil import iter_modules

import pytest

import headway.testing.conformance as package
from headway.contract.claims import SweepReply
from headway.contract.store import Store
from headway.core.errors import OutcomeUnknown, StoreUnavailable
from headway.stores.memory import MemoryStore
from headway.testing.conformance import StoreConformance
from headway.testing.conformance.rig import ConformanceGroup
from headway.testing.faulty import Fault, FaultyStore
from tests.conformance import test_repeated
from tests.redis import test_cluster
from tests.servers.stores import is_quick, third_of


def groups() -> list[type[ConformanceGroup]]:
    modules = [
        import_module(f"{package.__name__}.{one.name}") for one in iter_modules(package.__path__)
    ]
    things = [value for module in modules for value in vars(module).values()]
    found = [one for one in things if isinstance(one, type) and ConformanceGroup in one.__bases__]
    return list(dict.fromkeys(found))


def test_suite_runs_every_group() -> None:
    assert set(groups()) == set(StoreConformance.__bases__)
    assert len(groups()) > 35


def test_no_name_is_used_twice() -> None:
    names = Counter(name for group in groups() for name in vars(group) if not name.startswith("_"))
    assert [name for name, number in names.items() if number > 1] == []


def test_different_third_of_the_suite_is_quick_on_each_server() -> None:
    names = [name for group in groups() for name in vars(group) if name.startswith("test_")]
    one, other = (
        {name for name in names if is_quick(f"tests/conformance/test_{store}.py::Test::{name}")}
        for store in ("postgres", "redis")
    )
    for quick in (one, other):
        assert 0.28 < len(quick) / len(names) < 0.39
    assert len(one & other) < len(one) / 2


def test_thirds_are_equal_and_each_test_is_repeated_on_one_store_of_three() -> None:
    names = [name for group in groups() for name in vars(group) if name.startswith("test_")]
    sizes = Counter(third_of(name) for name in names)
    assert sizes.keys() == {0, 1, 2}
    assert all(0.28 < size / len(names) < 0.39 for size in sizes.values())
    classes = [
        test_repeated.TestRepeatedSqliteStore,
        test_repeated.TestRepeatedOnALaterPostgresSchema,
        test_cluster.TestRepeatedClusterStore,
    ]
    marks = [mark for one in classes for mark in one.pytestmark]
    assert sorted(mark.args[0] for mark in marks if mark.name == "third") == [0, 1, 2]


def test_faulty_store_does_everything_that_a_store_does() -> None:
    store: Store = FaultyStore(MemoryStore())
    operations = {name for name in vars(Store) if not name.startswith("_")}
    assert operations <= {name for name in dir(store) if not name.startswith("_")}


async def test_planned_fault_hits_the_named_operation_once() -> None:
    store = FaultyStore(MemoryStore())
    store.plan(Fault.REFUSE, operation="sweep", nth=2)
    assert isinstance(await store.sweep(1), SweepReply)
    assert await store.lead("alerts", "one", 9) is not None
    with pytest.raises(StoreUnavailable):
        await store.sweep(1)
    assert isinstance(await store.sweep(1), SweepReply)


async def test_cut_reply_is_lost_after_the_operation() -> None:
    store = FaultyStore(MemoryStore())
    store.plan(Fault.CUT)
    with pytest.raises(OutcomeUnknown):
        await store.lead("alerts", "one", 10_000)
    assert await store.inner.lead("alerts", "two", 10_000) is None
    assert store.calls == ["lead"]
