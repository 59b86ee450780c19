"""The conformance suite over HTTP: what workers, producers and readers are promised."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance import MakeStore
from headway.testing.conformance.cancelling import CancelGroup
from headway.testing.conformance.cascading import CascadeGroup
from headway.testing.conformance.claiming import ClaimGroup, LaneGroup
from headway.testing.conformance.closing import ClosingGroup
from headway.testing.conformance.enqueueing import EnqueueGroup
from headway.testing.conformance.explaining import WhyGroup
from headway.testing.conformance.fencing import FencingGroup
from headway.testing.conformance.following import FollowGroup
from headway.testing.conformance.handing_over import HandOverGroup, ReconcileGroup
from headway.testing.conformance.leases import LeaseGroup, SweepGroup
from headway.testing.conformance.ordering import OrderGroup, SchedulingGroup
from headway.testing.conformance.parking import ParkingGroup
from headway.testing.conformance.pools import PoolGroup
from headway.testing.conformance.racing import RaceGroup
from headway.testing.conformance.reading import ListingGroup, StatsGroup
from headway.testing.conformance.reviving import NewLifeGroup
from headway.testing.conformance.settling import SettleGroup
from headway.testing.conformance.signalling import SignalGroup
from headway.testing.conformance.slots import SlotsGroup
from tests.client.served import Served
from tests.client.through import ThroughStore


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with Served(MemoryStore()) as server:
        yield server


@pytest.mark.slow
class TestServedStore(
    ClaimGroup,
    LaneGroup,
    ClosingGroup,
    CancelGroup,
    CascadeGroup,
    EnqueueGroup,
    WhyGroup,
    FencingGroup,
    FollowGroup,
    HandOverGroup,
    ReconcileGroup,
    LeaseGroup,
    SweepGroup,
    OrderGroup,
    SchedulingGroup,
    ParkingGroup,
    PoolGroup,
    RaceGroup,
    ListingGroup,
    StatsGroup,
    NewLifeGroup,
    SettleGroup,
    SignalGroup,
    SlotsGroup,
):
    @pytest.fixture
    def make_store(self, served: Served) -> MakeStore:
        def make(clock: FakeClock) -> ThroughStore:
            return ThroughStore(served, MemoryStore(clock=clock))

        return make
