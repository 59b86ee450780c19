from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Generator[Path]:
    """Return the path of a database, removed after the test: the largest take most of 1 GB."""
    yield tmp_path / "crowd.db"
    for file in tmp_path.iterdir():
        if file.is_file():
            file.unlink()
    gc.collect()
