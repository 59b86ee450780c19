"""Push notices through a gateway: one HTTP POST, with the job's id as idempotency key."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import httpx

import headway as hw


class Gateway(Protocol):
    """A gateway that delivers notices to devices."""

    async def push(self, job: hw.Job, device: str, title: str, text: str) -> str:
        """Deliver a notice to a device, at most once for the same job."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpGateway:
    """A gateway behind a URL.

    It gets the job's id as `Idempotency-Key`, to recognize a repeat.

    Attributes:
        url: URL for notices; "" for none.
        token: Bearer token; "" for none.
    """

    url: str
    token: str

    async def push(self, job: hw.Job, device: str, title: str, text: str) -> str:
        """Post a notice.

        Raises:
            Dead: there is no gateway, or it refuses the notice permanently.
            Retry: the gateway is busy or unreachable.
        """
        if not self.url:
            raise hw.Dead("there is no push gateway: set PUSH_URL")
        headers = {"Idempotency-Key": job.id}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        notice = {"device": device, "title": title, "text": text}
        try:
            async with httpx.AsyncClient(timeout=10) as client:
                reply = await client.post(self.url, json=notice, headers=headers)
        except httpx.HTTPError as error:
            reason = f"the push gateway cannot be reached: {error}"
            raise hw.Retry(reason) from error
        if reply.status_code == HTTPStatus.GONE:
            raise hw.Dead("the device is gone")
        if reply.status_code == HTTPStatus.TOO_MANY_REQUESTS or reply.is_server_error:
            reason = f"the push gateway said {reply.status_code}"
            raise hw.Retry(reason, after=_asked_for(reply))
        if not reply.is_success:
            reason = f"the push gateway said {reply.status_code}"
            raise hw.Dead(reason)
        return f"{reply.status_code}"


def _asked_for(reply: httpx.Response) -> str | None:
    """Return the gateway's Retry-After, at most an hour; None if there is none."""
    seconds = reply.headers.get("Retry-After", "")
    return f"{min(int(seconds), 3600)}s" if seconds.isascii() and seconds.isdigit() else None
