"""What the server knows of the letters: their arguments, and how soon they are tried again.

The handlers run in the workers' processes: those of `examples.lanes`, and `letters.mjs`.
"""

from __future__ import annotations

import headway as hw

AGAIN = hw.Backoff(attempts=9, base="400ms", cap="2s")
"""Sooner than the default, so that what a killed worker held is back while the demo is watched."""

UNKNOWN = ("send_fax", "send_pigeon")
"""Types that no worker knows."""


def declare_kinds(app: hw.App) -> None:
    """Declares the types that are enqueued.

    Args:
        app: of the server.
    """

    @app.job(lane="send_email", subject="{to}", retry=AGAIN)
    async def send_email(to: str, title: str, text: str) -> None: ...

    @app.job(lane="send_outreach", retry=AGAIN)
    async def send_outreach(prospect: int, title: str, text: str) -> None: ...

    @app.job(lane="enrich", retry=AGAIN)
    async def enrich_prospect(prospect: int) -> None: ...

    @app.job(lane="notify", retry=AGAIN)
    async def health_check() -> None: ...
