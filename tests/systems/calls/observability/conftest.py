from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.systems.calls.observability.world import World, world_in


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    async with world_in(tmp_path) as made:
        yield made
