"""An application behind HTTP: told by webhooks that are signed as Twilio signs them.

Source: Twilio, "Webhooks security".
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence
from urllib.parse import urlencode

import httpx

from headway.carrier.application import NotHeard, Notice, NotUnderstood
from headway.carrier.forms import (
    Fields,
    call_fields,
    inbound_fields,
    status_fields,
    text_fields,
)
from headway.carrier.ledger import Call, Text
from headway.systems.telephony.texts import TextStatus

TIMEOUT_S = 15
"""How long Twilio waits for an application."""
_LATER = frozenset({408, 425, 429})


class HttpApplication:
    """An application behind HTTP.

    Args:
        account: stands in each webhook.
        key: signs them.
    """

    def __init__(self, account: str, key: str) -> None:
        self._account = account
        self._key = key.encode()
        self._http: httpx.AsyncClient | None = None

    async def call_status(self, call: Call, notice: Notice) -> None:
        """See `Application`."""
        fields = status_fields(self._account, call, notice)
        await self._ask(call.plan.status_url or "", call.plan.status_method, fields)

    async def words(
        self, call: Call, url: str, method: str, more: Sequence[tuple[str, str]] = ()
    ) -> str:
        """See `Application`."""
        fields = [*call_fields(self._account, call, call.status.value), *more]
        return await self._ask(url, method, fields)

    async def text_status(self, text: Text, status: TextStatus, number: int) -> None:
        """See `Application`."""
        del number
        await self._ask(
            text.plan.status_url or "", "POST", text_fields(self._account, text, status)
        )

    async def inbound(self, text: Text, url: str) -> str:
        """See `Application`."""
        return await self._ask(url, "POST", inbound_fields(self._account, text))

    async def close(self) -> None:
        """See `Application`."""
        if self._http is not None:
            await self._http.aclose()

    async def _ask(self, url: str, method: str, fields: Fields) -> str:
        if method == "GET":
            url = f"{url}{'&' if '?' in url else '?'}{urlencode(fields)}"
            fields = []
        try:
            # Signed is what is asked for in the end, however it was written.
            url = str(httpx.URL(url))
        except httpx.InvalidURL as error:
            message = f"11100 {url!r:.200} is no URL"
            raise NotUnderstood(message) from error
        headers = {"X-Twilio-Signature": signature(self._key, url, fields)}
        if method != "GET":
            headers["Content-Type"] = "application/x-www-form-urlencoded; charset=UTF-8"
        if self._http is None:
            # Made when it is first needed: a settings file is read without an event loop.
            limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
            self._http = httpx.AsyncClient(timeout=TIMEOUT_S, limits=limits, trust_env=False)
        try:
            reply = await self._http.request(
                method, url, content=urlencode(fields), headers=headers
            )
        except httpx.HTTPError as error:
            message = f"11200 {url} does not answer: {type(error).__name__}"
            raise NotHeard(message) from error
        if reply.is_success:
            return reply.text
        message = f"11200 {url} answers {reply.status_code}"
        if reply.is_server_error or reply.status_code in _LATER:
            raise NotHeard(message)
        raise NotUnderstood(message)


def signature(key: bytes, url: str, fields: Fields) -> str:
    """Twilio's signature over a URL as it is called, and the form's fields in their order."""
    text = url + "".join(name + value for name, value in sorted(fields))
    return b64encode(hmac.digest(key, text.encode(), "sha1")).decode()
