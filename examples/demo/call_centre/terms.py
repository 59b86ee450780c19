"""The limits of the call centre, against which the rules are checked."""

from __future__ import annotations

NUMBERS = {"+15550100001": 5, "+15550100002": 4, "+15550100003": 3}
"""Numbers for outgoing calls, with the maximum number of calls at once."""
CUSTOMER_LIMIT, CUSTOMER_WINDOW_MS = 2, 20_000
"""Maximum calls to one phone in any window, as in `systems.toml`."""
OPENS, CLOSES = 9, 18
"""Office hours in the customer's local time."""
BARRED = "+1415555000"
"""Prefix of phones that may not be called."""
