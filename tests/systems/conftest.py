from __future__ import annotations

import pytest

from tests.runtime.observed_store import sweep_often


@pytest.fixture(autouse=True)
def sweeps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep often: what becomes due need not wait for 2 s. In virtual time a wait takes none."""
    if request.path.stem != "test_week":
        sweep_often(monkeypatch)
