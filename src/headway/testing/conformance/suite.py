"""All groups of the suite in one class, for the author of a store to inherit."""

from __future__ import annotations

from headway.testing.conformance.accepting import AcceptGroup
from headway.testing.conformance.cascading import CascadeGroup
from headway.testing.conformance.claiming import ClaimGroup, LaneGroup, ManyFlowsGroup
from headway.testing.conformance.closing import ClosingGroup, ImplicitGateGroup
from headway.testing.conformance.defining import DefineGroup, RedeclareGroup
from headway.testing.conformance.editing import EditGroup, StageGroup
from headway.testing.conformance.enqueueing import EnqueueGroup
from headway.testing.conformance.explaining import WhyGroup
from headway.testing.conformance.fencing import FencingGroup
from headway.testing.conformance.following import FollowGroup
from headway.testing.conformance.granting import TokenGroup
from headway.testing.conformance.handing_over import HandOverGroup, KnownKeysGroup, ReconcileGroup
from headway.testing.conformance.leases import LeadGroup, LeaseGroup, SweepGroup
from headway.testing.conformance.moving import MovingGroup, RestoreGroup
from headway.testing.conformance.operating import ActGroup, CancelGroup, NewLifeGroup
from headway.testing.conformance.ordering import FairnessGroup, OrderGroup, SchedulingGroup
from headway.testing.conformance.parking import HoldBackGroup, ParkingGroup
from headway.testing.conformance.rates_and_hours import HoursGroup, RateGroup
from headway.testing.conformance.reading import FlowsGroup, ListingGroup, StatsGroup, TrailGroup
from headway.testing.conformance.repeating import RaceGroup, RepeatGroup
from headway.testing.conformance.reserving import ReserveGroup
from headway.testing.conformance.settling import SettleGroup
from headway.testing.conformance.signalling import SignalGroup
from headway.testing.conformance.slots import PoolGroup, ReleasePermitGroup, SlotsGroup
from headway.testing.conformance.ticketing import TicketGroup
from headway.testing.conformance.timekeeping import TimeGroup, WaitGroup
from headway.testing.conformance.timetabling import TimetableGroup
from headway.testing.conformance.verdicts import VerdictGroup


class StoreConformance(
    EnqueueGroup,
    OrderGroup,
    SchedulingGroup,
    ClaimGroup,
    LaneGroup,
    ManyFlowsGroup,
    SlotsGroup,
    RateGroup,
    HoursGroup,
    PoolGroup,
    ClosingGroup,
    ImplicitGateGroup,
    ParkingGroup,
    TicketGroup,
    HoldBackGroup,
    ReserveGroup,
    SettleGroup,
    FencingGroup,
    VerdictGroup,
    HandOverGroup,
    ReconcileGroup,
    SignalGroup,
    KnownKeysGroup,
    StageGroup,
    RestoreGroup,
    CancelGroup,
    ActGroup,
    EditGroup,
    NewLifeGroup,
    ReleasePermitGroup,
    FollowGroup,
    FairnessGroup,
    CascadeGroup,
    AcceptGroup,
    TimetableGroup,
    LeaseGroup,
    SweepGroup,
    LeadGroup,
    TimeGroup,
    WaitGroup,
    DefineGroup,
    RedeclareGroup,
    TokenGroup,
    WhyGroup,
    ListingGroup,
    FlowsGroup,
    StatsGroup,
    TrailGroup,
    RepeatGroup,
    RaceGroup,
    MovingGroup,
):
    """Every behaviour that a store promises; a subclass supplies `make_store`."""
