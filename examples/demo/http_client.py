"""The demo programs' client for the server."""

from __future__ import annotations

from typing import Any

import httpx

PAGE = "500"


class Asking:
    """A program's connection to the server.

    Args:
        url: URL of the server.

    Attributes:
        http: For requests that may be refused.
    """

    def __init__(self, url: str) -> None:
        self.http = httpx.AsyncClient(base_url=url, timeout=20)

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        params: dict[str, str] | None = None,
    ) -> Any:  # noqa: ANN401  (any JSON)
        """Send a request, and return the body of the reply.

        Raises:
            RuntimeError: the reply is an error.
        """
        reply = await self.http.request(method, path, json=body, params=params)
        if reply.is_error:
            message = f"{method} {path}: {reply.status_code} {reply.text}"
            raise RuntimeError(message)
        return reply.json() if reply.content else None

    async def rows(self, path: str, **asked: str) -> list[dict[str, Any]]:
        """Return all rows of a listing, filtered by the query parameters `asked`."""
        found: list[dict[str, Any]] = []
        cursor: str | None = None
        while True:
            place = {"cursor": cursor} if cursor else {}
            page = await self.ask("GET", path, params={"limit": PAGE, **asked, **place})
            found += page["rows"]
            cursor = page["cursor"]
            if cursor is None:
                return found

    async def close(self) -> None:
        """Close the connection."""
        await self.http.aclose()
