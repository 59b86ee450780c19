"""Gates that the tests of the command share."""

from __future__ import annotations

from headway.contract.definitions import DeclareGate, DefineRequest
from headway.contract.store import Store
from headway.core.gates.pool import Pool
from headway.core.gates.rate import Rate
from headway.core.gates.slots import Slots
from headway.core.gates.spec import GateSpec
from tests.cli.seeding import with_store


def declare(*specs: GateSpec) -> None:
    """Declare gates, as an App does."""

    async def work(store: Store) -> int:
        items = tuple(DeclareGate(spec=spec) for spec in specs)
        return await store.define(DefineRequest(items=items, author="code"))

    with_store(work)


def declare_line() -> None:
    """Declare the gate `line`, which has a single permit."""
    declare(Slots("line", 1))


def declare_all() -> None:
    """Declare a gate of each kind that counts."""
    declare(Slots("line", 1), Rate("sms", 7, "1h"), Pool("numbers", {"+1555": 2, "+1666": 1}))
