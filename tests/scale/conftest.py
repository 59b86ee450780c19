from __future__ import annotations

import gc
from collections.abc import Generator
from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Generator[Path]:
    """A database that is gone after the test: the largest ones take most of a gigabyte."""
    yield tmp_path / "crowd.db"
    for file in tmp_path.iterdir():
        if file.is_file():
            file.unlink()
    gc.collect()
