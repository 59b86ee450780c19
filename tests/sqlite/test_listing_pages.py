"""Pages of a listing, compared with filtering the same jobs one by one."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import pytest

from headway.contract.views import JobsQuery
from headway.core.state import State
from headway.stores.ledger import paging
from headway.stores.ledger.columns import CODES
from headway.stores.ledger.paging import Summary, page_of
from headway.stores.ledger.rows import FlowKey

KINDS = ("call", "mail", "sms")
JOBS = [(seq, seq % 3, CODES[list(State)[seq % 4]]) for seq in range(1, 30)]
"""Seq, flow and state of each job."""


class Listed:
    """The jobs of a listing, as a database examines them."""

    def __init__(self, newest: bool) -> None:
        self._newest = newest
        self._jobs = JOBS[::-1] if newest else JOBS

    def summarize(self, after: int, many: int, states: Sequence[int]) -> Summary:
        rows = self._rows(after, many)
        flows = {flow for _, flow, state in rows if state in states}
        return Summary(len(rows), rows[-1][0] if rows else None, sorted(flows))

    def fitting(
        self, after: int, many: int, states: Sequence[int], flows: Sequence[int], limit: int
    ) -> list[int]:
        rows = self._rows(after, many)
        return [seq for seq, flow, state in rows if state in states and flow in flows][:limit]

    def _rows(self, after: int, many: int) -> list[tuple[int, int, int]]:
        past = [one for one in self._jobs if (one[0] < after if self._newest else one[0] > after)]
        return past[:many]


@pytest.mark.parametrize(("most_examined", "first"), [(29, 7), (28, 7), (10, 4), (3, 7), (7, 7)])
def test_pages_have_every_matching_job_once_and_a_cursor_while_more_follow(
    monkeypatch: pytest.MonkeyPatch, most_examined: int, first: int
):
    monkeypatch.setattr(paging, "MOST_EXAMINED", most_examined)
    monkeypatch.setattr(paging, "FIRST", first)
    for kind, states, newest, limit in product(
        (None, *KINDS, "none"), ((), (State.SCHEDULED,)), (False, True), (1, 4, 29, 30)
    ):
        query = JobsQuery(kind=kind, states=states, newest=newest, limit=limit)
        codes = [CODES[one] for one in states or State]
        listed = JOBS[::-1] if newest else JOBS
        fits = [
            seq for seq, flow, state in listed if state in codes and kind in {None, KINDS[flow]}
        ]
        found: list[int] = []
        cursor: str | None = None
        while True:
            given = JobsQuery(kind=kind, states=states, newest=newest, limit=limit, cursor=cursor)
            page, cursor = page_of(
                given, Listed(newest), lambda flow: FlowKey("", "", KINDS[flow], ())
            )
            assert len(page) <= limit
            found += page
            if cursor is None:
                break
            # The cursor leads to another job: the last page says itself that it is the last.
            assert int(cursor) != listed[-1][0], query
        assert found == fits, query
