"""The conformance suite over HTTP: what is promised to workers, producers and readers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headway.stores.memory import MemoryStore
from headway.testing.clock import FakeClock
from headway.testing.conformance import MakeStore
from headway.testing.conformance.accepting import AcceptGroup
from headway.testing.conformance.cascading import CascadeGroup
from headway.testing.conformance.claiming import ClaimGroup, LaneGroup
from headway.testing.conformance.closing import ClosingGroup
from headway.testing.conformance.enqueueing import EnqueueGroup
from headway.testing.conformance.explaining import WhyGroup
from headway.testing.conformance.fencing import FencingGroup
from headway.testing.conformance.following import FollowGroup
from headway.testing.conformance.handing_over import HandOverGroup, KnownKeysGroup, ReconcileGroup
from headway.testing.conformance.leases import LeaseGroup, SweepGroup
from headway.testing.conformance.operating import CancelGroup, NewLifeGroup
from headway.testing.conformance.ordering import OrderGroup, SchedulingGroup
from headway.testing.conformance.parking import ParkingGroup
from headway.testing.conformance.reading import FlowsGroup, ListingGroup, StatsGroup
from headway.testing.conformance.repeating import RaceGroup
from headway.testing.conformance.settling import SettleGroup
from headway.testing.conformance.signalling import SignalGroup
from headway.testing.conformance.slots import PoolGroup, SlotsGroup
from tests.client.over_http import HttpStore
from tests.client.served import Served

NOT_OVER_HTTP = {
    "test_arguments_are_returned_byte_for_byte": "JSON is written again: spaces are not kept",
    "test_arguments_above_the_limit_are_refused_and_at_it_are_kept": "arguments are objects",
    "test_odd_lanes_and_tenants_stay_distinct": "a lane with * in it is a pattern",
    "test_cascade_without_candidates_is_exhausted_at_once": "refused by the body",
    "test_follow_up_of_an_empty_cascade_is_created_even_if_its_id_is_taken": "the same",
    "test_every_end_of_a_run_releases_its_permits[next]": "a stage without a name is refused",
    "test_settling_a_settled_run_again_returns_already_and_writes_nothing[next]": "the same",
    "test_job_with_a_cancel_request_ends_cancelled_whatever_its_outcome[next]": "the same",
    "test_worker_without_lease_after_hand_over_can_write_nothing": (
        "a snooze without a time is refused"
    ),
    "test_restored_job_is_not_settled_by_its_former_worker": "runs are counted from 1",
    "test_expired_job_that_never_started_is_dead_as_expired": (
        "a job expires after a duration; the suite's clock is not this machine's"
    ),
    "test_job_without_a_due_time_is_due_now": "the same",
    "test_claim_names_the_jobs_it_finds_expired": "the server that claimed logs them",
    "test_claim_that_leaves_expired_jobs_asks_for_another_at_once": "the same",
    "test_claim_reports_its_workers_lost_jobs_that_are_dead": "the same",
    "test_listed_jobs_have_the_trail_that_each_has": "a listing has no trail over HTTP",
    "test_key_of_a_cascade_that_ends_at_once_lasts_its_duration": "refused by the body",
    "test_maximum_number_of_gates_is_accepted": "a body has 32 at most",
    "test_gate_used_differently_than_declared_is_refused[shared]": (
        "a body does not say whether a gate is shared"
    ),
    "test_gate_used_differently_than_declared_is_refused[keyed]": "the same",
    "test_gate_named_twice_is_refused_before_its_amount": "the body refuses the amount",
    "test_retried_job_asks_the_given_candidates_again": "HTTP takes no other candidates",
    "test_signal_with_nul_in_a_name_is_refused": "one in `known_as` is omitted",
    "test_signal_with_an_invalid_text_is_refused_and_writes_nothing[nul]": "it is replaced",
    "test_signal_with_an_invalid_candidate_is_refused[nul]": "the same",
    "test_reference_names_its_own_run_though_another_job_took_it_before": (
        "the reference of another job is refused"
    ),
    "test_invalid_claim_is_refused_and_starts_nothing[{'request': 0}]": "0 means no number",
    **{
        f"test_choice_that_does_not_exist_is_refused_and_writes_nothing[{what}]": (
            "the body refuses it, in other words"
        )
        for what in ("hold", "jitter", "on_deadline")
    },
}
"""What the suite requires of a store and HTTP does not offer, with the reasons."""


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
    AcceptGroup,
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
    FlowsGroup,
    StatsGroup,
    NewLifeGroup,
    SettleGroup,
    SignalGroup,
    KnownKeysGroup,
    SlotsGroup,
):
    @pytest.fixture
    def make_store(self, served: Served) -> MakeStore:
        def make(clock: FakeClock) -> HttpStore:
            return HttpStore(served, MemoryStore(clock=clock))

        return make

    @pytest.fixture(autouse=True)
    def over_http(self, request: pytest.FixtureRequest) -> None:
        why = NOT_OVER_HTTP.get(request.node.name)
        if why is not None:
            pytest.skip(why)
