"""What one process tells others of its commits, and when."""

from __future__ import annotations

import pytest

from headway.stores.postgres import listening
from headway.stores.postgres.listening import Listening
from headway.stores.postgres.options import parse_url


def test_first_commit_is_notified_at_once_however_lately_the_machine_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listening, "NOTIFY_EVERY", 3600.0)
    monkeypatch.setattr(listening, "monotonic", lambda: 0.0)
    one = Listening(
        parse_url("postgresql://127.0.0.1/never_reached"),
        hear=lambda _: None,
        miss=lambda: None,
        check=lambda: None,
        waiting=set,
    )
    assert one.make_notice([("main", None)]) is not None
    assert one.make_notice([("main", None)]) is None
    one.close(0)
