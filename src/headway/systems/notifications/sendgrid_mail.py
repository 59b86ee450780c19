"""SendGrid: e-mail by its official client.

Source: SendGrid, "Mail Send", "Errors".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from email.headerregistry import Address
from types import SimpleNamespace
from typing import Annotated, Any, cast
from urllib.request import Request

import httpx
import msgspec
from anyio import from_thread, to_thread
from pydantic import Field
from python_http_client.client import Client, Response
from sendgrid import SendGridAPIClient  # pyright: ignore[reportMissingTypeStubs]  (it has none)
from sendgrid.helpers.mail import Content, CustomArg, From, Header, Mail, To  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.core.errors import ProviderError
from headway.runtime.settings_table import BaseUrl, Table
from headway.runtime.timing import Timing
from headway.server.hooks.sendgrid import REF
from headway.systems.notifications.mail import check_mail, read_address, unsubscribe_headers
from headway.systems.notifications.sender import (
    Accepted,
    Message,
    Refused,
    SendResult,
    Timeout,
    outcome_of,
)
from headway.systems.telephony.http import ProviderHttp, Refusal

SENDGRID_URL = "https://api.sendgrid.com"


class SendGridTable(Table):
    """`[notifications.senders.email.sendgrid]`; `timeout`, in ms, is for a whole reply."""

    api_key: Annotated[str, Field(min_length=8, repr=False)]
    base_url: BaseUrl = SENDGRID_URL
    timeout: Timeout = 10_000


AWAY = frozenset({503})
"""The API is unavailable, and has not processed the request."""


class SendGridMail:
    """Sends e-mail through an account at SendGrid."""

    def __init__(self, settings: SendGridTable, from_: str, timing: Timing) -> None:
        """Connect nothing yet.

        Args:
            from_: address of the sender, with or without a display name.
        """
        # At lower levels it logs whole requests, including the key.
        logging.getLogger("python_http_client").setLevel(logging.INFO)
        self._from = cast("Address", read_address(from_))
        self._http = ProviderHttp(
            "sendgrid", _read_refusal, timeout_ms=settings.timeout, timing=timing, not_done=AWAY
        )
        self._api = SendGridAPIClient(settings.api_key, host=settings.base_url)
        made = self._api.client
        self._api.client = _WireClient(self._http, made.host, made.request_headers, [])

    async def send(self, message: Message) -> SendResult:
        if fault := check_mail(message):
            return Refused(fault)
        send = cast("Callable[[Mail], Response]", self._api.send)
        try:
            reply = await to_thread.run_sync(send, self._written(message))
        except ProviderError as error:
            return outcome_of(error)
        return Accepted(cast("httpx.Headers", reply.headers).get("x-message-id"))

    async def close(self) -> None:
        await self._http.close()

    def _written(self, message: Message) -> Mail:
        to = cast("Address", read_address(message.to))
        mail: Any = Mail(
            From(self._from.addr_spec, self._from.display_name or None),
            To(to.addr_spec, to.display_name or None),
            message.title,
            Content("text/plain", message.text or "\n"),
        )
        if message.html is not None:
            mail.add_content(Content("text/html", message.html))
        for name, text in unsubscribe_headers(message).items():
            mail.add_header(Header(name, text))
        # Its events contain this, also those that arrive before the reply to this request.
        mail.add_custom_arg(CustomArg(REF, message.id))
        return cast("Mail", mail)


class _WireClient(Client):
    """The official client, sending its requests through `ProviderHttp`; for use in an anyio thread.

    The client's own transport has no timeout, and does not show whether a request was sent.
    """

    def __init__(
        self, http: ProviderHttp, host: str, headers: dict[str, str], path: Sequence[str]
    ) -> None:
        super().__init__(host, headers, version=3, url_path=list(path))
        self._http = http
        self._path = path

    def _build_client(self, name: str | None = None) -> Client:
        path = [*self._path, name] if name else self._path
        return _WireClient(self._http, self.host, self.request_headers, path)

    def _make_request(self, opener: object, request: Request, timeout: object = None) -> object:
        del opener, timeout  # `ProviderHttp` has its own
        content = cast("bytes | None", request.data)
        headers = dict(request.header_items())
        sent = httpx.Request(
            request.get_method(), request.full_url, headers=headers, content=content
        )
        reply = from_thread.run(self._http.send, sent)
        # The client expects urllib's reply.
        return SimpleNamespace(
            getcode=lambda: reply.status_code,
            read=lambda: reply.content,
            info=lambda: reply.headers,
        )


class _Fault(msgspec.Struct):
    message: str = ""
    field: str | None = None


class _Faults(msgspec.Struct):
    errors: list[_Fault]


def _read_refusal(status: int, body: bytes) -> Refusal:
    """Parse a 4xx reply; if it has no SendGrid error, it concerns the provider."""
    try:
        faults = msgspec.json.decode(body, type=_Faults).errors
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return Refusal(concerns="provider", text="the reply has no SendGrid error")
    text = "; ".join(one.message for one in faults)
    by_account = status in {401, 402, 403, 404, 405, 407}
    return Refusal(concerns="provider" if by_account else "callee", code=str(status), text=text)
