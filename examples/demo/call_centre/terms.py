"""What the call centre has agreed to; the rules are checked against these numbers."""

from __future__ import annotations

NUMBERS = {"+15550100001": 5, "+15550100002": 4, "+15550100003": 3}
"""From which is called, and how many calls each carries at once."""
CUSTOMER_LIMIT, CUSTOMER_WINDOW_MS = 2, 20_000
"""Calls to one phone in any window; `systems.toml` has the same."""
OPENS, CLOSES = 9, 18
"""Hours of the clock where a customer lives."""
BARRED = "+1415555000"
"""With this begin the phones that may not be called."""
