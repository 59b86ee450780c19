"""The kinds of letters as declared on the server: their arguments and retries.

The handlers run in the workers' processes: those of `examples.lanes`, and `letters.mjs`.
"""

from __future__ import annotations

import headway as hw

AGAIN = hw.Backoff(attempts=9, base="400ms", cap="2s")
"""Sooner than the default, so that a killed worker's jobs are retried during the demo."""

UNKNOWN = ("send_fax", "send_pigeon")
"""Types for which no worker has a handler."""


def declare_kinds(app: hw.App) -> None:
    """Declare the types of letters in the server's app."""

    @app.job(lane="send_email", subject="{to}", retry=AGAIN)
    async def send_email(to: str, title: str, text: str) -> None: ...

    @app.job(lane="send_outreach", retry=AGAIN)
    async def send_outreach(prospect: int, title: str, text: str) -> None: ...

    @app.job(lane="enrich", retry=AGAIN)
    async def enrich_prospect(prospect: int) -> None: ...

    @app.job(lane="notify", retry=AGAIN)
    async def health_check() -> None: ...
