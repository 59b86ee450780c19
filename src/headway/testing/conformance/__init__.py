"""The conformance suite: tests of what every store promises.

The author of a store writes one class:

    class TestMyStore(StoreConformance):
        @pytest.fixture
        def make_store(self) -> MakeStore:
            return lambda clock: MyStore(clock=clock)

pytest and pytest-asyncio run it. See docs/how-to/write-a-store.md for details.
"""

from __future__ import annotations

from pkgutil import iter_modules

import pytest

# Before the groups are imported, so that a failed assertion shows its values.
pytest.register_assert_rewrite(*(f"{__name__}.{module.name}" for module in iter_modules(__path__)))

from headway.testing.conformance.rig import MakeStore  # noqa: E402  (see above)
from headway.testing.conformance.suite import StoreConformance  # noqa: E402  (see above)

__all__ = ["MakeStore", "StoreConformance"]
