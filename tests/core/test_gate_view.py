"""A pool during a claim while one of its members is reserved for a job that needs more."""

from __future__ import annotations

from headway.core.gates.spec import GateKind
from headway.core.gates.view import GateView, MemberView, Order, Reservation

FIRST, LATER = Order(0, 0, 1), Order(0, 0, 2)


def pool(*free: int, amount: int) -> GateView:
    """Return a pool whose members have four permits each, and an amount reserved for a job."""
    members = [
        MemberView(name=name, capacity=4, used=4 - n, free=n)
        for name, n in zip("abc", free, strict=False)
    ]
    reserved = Reservation("big", FIRST, amount, 7)
    return GateView(
        name="pool", kind=GateKind.POOL, members=members, free=max(free), reserved=reserved
    )


def test_later_job_takes_from_a_member_that_is_not_reserved_and_nothing_is_lost() -> None:
    view = pool(2, 1, amount=4)
    assert view.take(1, LATER) == "b"
    assert ([one.free for one in view.members], view.free) == ([2, 0], 2)
    assert not view.fits(1, LATER)
    assert view.fits(2, FIRST)


def test_of_equally_free_members_the_first_is_reserved() -> None:
    view = pool(2, 2, 2, amount=4)
    assert [view.take(2, LATER), view.take(2, LATER)] == ["b", "c"]
    assert not view.fits(1, LATER)


def test_reservation_is_kept_for_its_job_until_an_earlier_one_needs_it() -> None:
    view = pool(2, amount=4)
    assert view.reserve("big", FIRST, 4)
    assert not view.reserve("other", LATER, 4)
    assert view.reserved == Reservation("big", FIRST, 4, 7)
    assert view.reserve("earlier", Order(0, 0, 0), 3)
