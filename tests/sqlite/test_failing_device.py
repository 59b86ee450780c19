"""A device that fails at the commit: the outcome is reported as unknown, and a repeat is safe."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from headway.contract.outcomes import Verdict
from headway.core.errors import InvariantBroken, OutcomeUnknown, StoreError, StoreUnavailable
from headway.stores.sqlite import SqliteStore
from headway.stores.sqlite.database import explain, is_broken
from headway.stores.sqlite.session import Session
from headway.testing.clock import FakeClock
from tests.plain_jobs import assert_clean, claim, count, job, succeed
from tests.sqlite.rig import options

real_commit = Session.commit


def fail_after_commit(self: Session) -> bool:
    """The frames reached the file before the device reported a failure."""
    real_commit(self)
    raise apsw.IOError("disk I/O error")


def fail_before_commit(self: Session) -> bool:
    """Nothing reached the file."""
    raise apsw.IOError("disk I/O error")


@pytest.mark.parametrize("fail", [fail_after_commit, fail_before_commit])
async def test_failed_commit_is_unknown_and_its_repeat_has_the_effect_of_one(
    path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, fail: object
) -> None:
    store = SqliteStore(options(path), clock)
    await store.enqueue([job(0)])
    with monkeypatch.context() as patch:
        patch.setattr(Session, "commit", fail)
        with pytest.raises(OutcomeUnknown) as error:
            await store.enqueue([job(1)])
    assert "repeat" in error.value.hint
    reply = await store.enqueue([job(1)])
    assert reply[0].created is (fail is fail_before_commit)
    runs = [(one.id, one.run) for one in (await claim(store)).jobs]
    assert len(runs) == 2
    with monkeypatch.context() as patch:
        patch.setattr(Session, "commit", fail)
        with pytest.raises(OutcomeUnknown):
            await succeed(store, runs)
    told = Verdict.DONE if fail is fail_before_commit else Verdict.ALREADY
    assert await succeed(store, runs) == [told] * 2
    assert await count(store, "succeeded") == 2
    await assert_clean(store)
    await store.close()


async def test_failed_connection_is_never_used_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may have dropped what it could not write: a second fsync would wrongly succeed."""
    store = SqliteStore(options(path))
    await store.enqueue([job(0)])
    used = store._writer._open().session.db
    with monkeypatch.context() as patch:
        patch.setattr(Session, "commit", fail_before_commit)
        with pytest.raises(OutcomeUnknown):
            await store.enqueue([job(1)])
    with pytest.raises(apsw.ConnectionClosedError):
        used.execute("SELECT 1")
    await store.enqueue([job(2)])
    assert store._writer._open().session.db is not used
    await store.close()


async def test_failing_read_says_so_and_the_next_one_is_answered(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = SqliteStore(options(path))
    await store.enqueue([job(0)])

    def broken(_: Session, *, write: bool) -> None:
        raise apsw.IOError("disk I/O error")

    assert await count(store, "waiting") == 1
    with monkeypatch.context() as patch:
        patch.setattr(Session, "begin", broken)
        with pytest.raises(StoreUnavailable, match="disk I/O"):
            await count(store, "waiting")
    assert await count(store, "waiting") == 1
    await store.close()


KINDS = [
    (apsw.FullError, False, "store_full"),
    (apsw.FullError, True, "store_full"),
    (apsw.IOError, False, "store_unavailable"),
    (apsw.IOError, True, "outcome_unknown"),
    (apsw.BusyError, False, "store_unavailable"),
    (apsw.LockedError, False, "store_unavailable"),
    (apsw.CorruptError, False, "store_corrupt"),
    (apsw.NotADBError, False, "store_corrupt"),
    (apsw.ReadOnlyError, False, "store_misconfigured"),
    (apsw.CantOpenError, False, "store_misconfigured"),
    (apsw.NoMemError, False, "store_unavailable"),
]


@pytest.mark.parametrize(("kind", "committing", "code"), KINDS)
def test_each_sqlite_error_has_its_place_in_the_tree_and_a_hint(
    kind: type[Exception], committing: bool, code: str
) -> None:
    told = explain(kind("it said so"), "headway.db", committing=committing)
    assert isinstance(told, StoreError)
    assert told.code == code
    assert "headway.db" in told.message
    assert "it said so" in told.message
    assert told.hint


def test_invalid_statement_is_reported_as_a_bug() -> None:
    told = explain(apsw.SQLError("no such column"), "headway.db", committing=False)
    assert isinstance(told, InvariantBroken)
    assert not is_broken(apsw.SQLError("no such column"))
    assert is_broken(apsw.IOError("x"))
