"""A client for the HTTP APIs of the server and the carrier."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from bench.slice.plan import Lead


class ApiClient:
    """Sends requests to a server and a carrier."""

    def __init__(self, server: str, carrier: str) -> None:
        self._http = httpx.AsyncClient(base_url=server, timeout=60)
        self._carrier = carrier

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Send one request, which must succeed."""
        reply = await self._http.request(method, path, json=body)
        assert reply.is_success, f"{method} {path}: {reply.status_code} {reply.text[:500]}"
        return reply.json() if reply.content else None

    async def number(self, number: str, channels: int) -> None:
        body = {"number": number, "provider": "twilio", "maximum_channels": channels}
        await self.ask("POST", "/numbers", body)

    async def channels(self, number: str, channels: int) -> None:
        await self.ask("PATCH", f"/numbers/{number}", {"maximum_channels": channels})

    async def template(self, name: str, check: str | None, spans: str | None) -> None:
        checks = [] if check is None else [{"check": "http", "url": check}]
        hours = None if spans is None else {"spans": spans}
        await self.ask("PUT", f"/templates/{name}", {"checks": checks, "hours": hours})

    async def send(self, leads: list[Lead], due: str | None) -> list[str]:
        """Send leads; return their ids."""
        bodies = [
            {
                "phone": one.phone,
                "tz": one.tz,
                "template": one.template,
                "reseller": one.reseller,
                **({} if due is None else {"next_attempt_at": due}),
            }
            for one in leads
        ]
        ids: list[str] = []
        for first in range(0, len(bodies), 1_000):
            told = await self.ask("POST", "/leads", bodies[first : first + 1_000])
            ids += [one["id"] for one in told["leads"]]
        return ids

    async def close_gate(self, gate: str) -> None:
        await self.ask("POST", "/v1/closures", {"gate": gate, "reason": "the slice"})

    async def open_gate(self, gate: str) -> None:
        await self.ask("DELETE", f"/v1/closures/{gate}")

    async def calls(self) -> dict[str, Any]:
        """Return the carrier's ledger."""
        reply = await self._http.get(f"{self._carrier}/_calls")
        return reply.json()

    async def jobs(self) -> list[dict[str, Any]]:
        """Return all leads as jobs, with their runs."""
        rows: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = await self.ask("GET", f"/v1/jobs?kind=lead&runs=true&limit=500{cursor}")
            rows += page["rows"]
            if page["cursor"] is None:
                return rows
            cursor = f"&cursor={page['cursor']}"

    async def until_finished(self, n: int) -> None:
        """Wait until `n` leads are finished."""
        while True:
            stats = await self.ask("GET", "/v1/stats")
            counts = stats["counts"]
            if counts.get("succeeded", 0) + counts.get("dead", 0) >= n:
                return
            await asyncio.sleep(2)
