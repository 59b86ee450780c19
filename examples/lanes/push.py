"""Push notices through a gateway: one HTTP POST, known to the gateway by the job's id."""

from __future__ import annotations

from dataclasses import dataclass
from http import HTTPStatus
from typing import Protocol

import httpx

import headway as hw


class Gateway(Protocol):
    """A gateway that brings a notice to a device."""

    async def push(self, job: hw.Job, device: str, title: str, text: str) -> str:
        """Brings a notice to a device; the same job never brings two."""
        ...


@dataclass(frozen=True, kw_only=True, slots=True)
class HttpGateway:
    """A gateway behind a URL.

    It is given the job's id as `Idempotency-Key`, by which it recognises a repeat.

    Attributes:
        url: where notices are posted to; empty for none.
        token: sent as a bearer token; empty for none.
    """

    url: str
    token: str

    async def push(self, job: hw.Job, device: str, title: str, text: str) -> str:
        """Posts a notice.

        Raises:
            Dead: there is no gateway, or it refuses the notice for good.
            Retry: the gateway is busy or cannot be reached.
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
    """How long the gateway asks to be left alone; None if it does not say."""
    seconds = reply.headers.get("Retry-After", "")
    return f"{min(int(seconds), 3600)}s" if seconds.isascii() and seconds.isdigit() else None
