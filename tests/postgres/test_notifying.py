"""What a process sends to others about its commits, and when."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.contract.outcomes import Released, SettleRequest
from headway.stores.postgres import listening
from headway.stores.postgres.link import SYNC, BoundStatement
from headway.stores.postgres.listening import Listening
from headway.stores.postgres.options import parse_url
from headway.stores.postgres.steps import Steps
from headway.stores.sql.statement import Rows
from headway.testing.clock import FakeClock
from tests.plain_jobs import claim, job
from tests.postgres.places import Place


def test_first_commit_notifies_at_once_however_recently_the_machine_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 3600.0)
    monkeypatch.setattr(listening, "monotonic", lambda: 0.0)
    one = Listening(
        parse_url("postgresql://127.0.0.1/never_reached"),
        on_wake=lambda _: None,
        on_missed=lambda: None,
        on_maybe_missed=lambda: None,
        waiting=set,
    )
    assert one.make_notice([("main", None)]) is not None
    assert one.make_notice([("main", None)]) is None
    one.close(0)


def texts_of(steps: Steps) -> list[str]:
    """Return a list that collects the statements sent over a connection from now on."""
    link = steps.session.link
    run, sent = link.run, list[str]()

    def noted(batch: Sequence[BoundStatement]) -> list[Rows]:
        sent.extend(text for text, _ in batch)
        return run(batch)

    link.run = noted  # pyright: ignore[reportAttributeAccessIssue]
    return sent


async def test_no_step_notifies_inside_its_transaction(
    place: Place, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 0.0)
    store = place.open(clock)
    inserts, turns = texts_of(store._enqueues._steps), texts_of(store._turns)
    # The first enqueue reads what later ones assume.
    for number, end in ((1, "COMMIT"), (2, SYNC)):
        inserts.clear()
        await store.enqueue([job(number)])
        assert inserts.index(end) == len(inserts) - 2
        assert "pg_notify" in inserts[-1]
    one, _ = (await claim(store)).jobs
    turns.clear()
    await store.settle(SettleRequest(worker="w", outcomes=(Released(one.id, one.run),)))
    assert turns.index("COMMIT") == len(turns) - 2
    assert "pg_notify" in turns[-1]
