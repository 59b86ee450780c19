from __future__ import annotations

import pytest

from tests.runtime.observed_store import sweep_often


@pytest.fixture(autouse=True)
def sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    sweep_often(monkeypatch)
