"""Number of random histories to play: HEADWAY_TEST_DEPTH times as many as for each change."""

from __future__ import annotations

import os

DEPTH = int(os.environ.get("HEADWAY_TEST_DEPTH", "1"))
