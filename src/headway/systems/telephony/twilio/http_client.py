"""How Twilio's official client reaches Twilio: by the wire, at the address of the settings."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

import httpx
from twilio.http import AsyncHttpClient  # pyright: ignore[reportMissingTypeStubs]  (it has types, but does not say so)
from twilio.http.response import Response  # pyright: ignore[reportMissingTypeStubs]  (as above)

from headway.systems.telephony.twilio.settings import BASE_URL
from headway.systems.telephony.wire import Wire

_log = logging.getLogger("headway.telephony.twilio")

Fields = Mapping[str, object] | None


class WireClient(AsyncHttpClient):
    """The seam that the official client has for its HTTP.

    Its own one puts people's numbers in the log, and does not tell whether a request was sent.
    """

    def __init__(self, wire: Wire, base_url: str) -> None:
        """Sends by the wire, to this address instead of Twilio's own."""
        super().__init__(_log, is_async=True)
        self._wire = wire
        self._base_url = base_url

    async def request(  # noqa: PLR0913, PLR0917  (the official client's own signature)
        self,
        method: str,
        uri: str,
        params: Fields = None,
        data: Fields = None,
        headers: Mapping[str, str] | None = None,
        auth: tuple[str, str] | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  (as above)
        allow_redirects: bool = False,
    ) -> Response:
        """Sends one request, once.

        Returns:
            A reply of 2xx.

        Raises:
            ProviderRefused: see `Wire.send`.
            ProviderUnsure: see `Wire.send`.
        """
        del timeout, allow_redirects  # the wire has one limit for all, and follows nothing
        request = httpx.Request(
            method,
            self._placed(uri),
            params=_texts(params),
            data=_texts(data),
            headers=dict(headers or {}),
        )
        reply = await self._wire.send(request, httpx.BasicAuth(*auth) if auth else None)
        return Response(reply.status_code, reply.text, reply.headers)

    def _placed(self, uri: str) -> str:
        return self._base_url + uri.removeprefix(BASE_URL) if uri.startswith(BASE_URL) else uri


def _texts(fields: Fields) -> dict[str, str | list[str]] | None:
    if fields is None:
        return None
    return {name: _text(value) for name, value in fields.items() if value is not None}


def _text(value: object) -> str | list[str]:
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [str(one) for one in value]  # pyright: ignore[reportUnknownArgumentType,reportUnknownVariableType]  (of whatever sort)
    return str(value)
