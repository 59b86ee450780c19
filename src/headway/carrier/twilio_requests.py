"""Requests to the carrier: authentication, fields and errors.

Source: Twilio, "Twilio's response", "Error and warning dictionary".
"""

from __future__ import annotations

import hmac
from base64 import b64decode
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

from pydantic import Field
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headway.carrier.network import PhoneNetwork
from headway.carrier.script import SimulatedSettings
from headway.core.errors import InvalidValue
from headway.server.hooks.request import read_form
from headway.systems.telephony.phone import is_phone

_SID = r"[0-9a-fA-F]{32}$"


class CarrierSettings(SimulatedSettings):
    """Settings of a carrier; by default, account and token are derived from the seed.

    Attributes:
        auth_token: token of the account, which also signs webhooks.
        api_keys: secrets of further API keys, by key.
    """

    account_sid: Annotated[str, Field(pattern="^AC" + _SID)] | None = None
    auth_token: Annotated[str, Field(min_length=8)] | None = Field(default=None, repr=False)
    api_keys: dict[Annotated[str, Field(pattern="^SK" + _SID)], str] = Field(
        default_factory=dict[str, str], repr=False
    )

    @property
    def account(self) -> str:
        """SID of the account."""
        return self.account_sid or f"AC{self._drawn('account')}"

    @property
    def token(self) -> str:
        """Token of the account."""
        return self.auth_token or self._drawn("token")

    def _drawn(self, what: str) -> str:
        return sha256(f"carrier:{self.seed}:{what}".encode()).hexdigest()[:32]


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """The services that the carrier's routes use.

    Attributes:
        secrets: secrets by user name.
    """

    network: PhoneNetwork
    account: str
    secrets: Mapping[str, str] = field(repr=False)


_STATUS: Mapping[int, int] = {
    20003: 401,
    20404: 404,
    20405: 405,
    20429: 429,
    20500: 500,
    20503: 503,
}


class RequestRefused(Exception):
    """Raised if a request is refused."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = _STATUS.get(code, 400)


async def refused(request: Request, error: Exception) -> Response:
    """Return the reply to a refused request."""
    if isinstance(error, HTTPException):
        error = _of_starlette(request, error)
    if not isinstance(error, RequestRefused):
        error = RequestRefused(20500, "Internal Server Error")
    headers: dict[str, str] = {}
    if error.status == 401:
        headers["WWW-Authenticate"] = 'Basic realm="Twilio API"'
    if error.status == 429:
        headers["Retry-After"] = "1"
    body = {
        "code": error.code,
        "message": error.message,
        "more_info": f"https://www.twilio.com/docs/errors/{error.code}",
        "status": error.status,
    }
    return JSONResponse(body, error.status, headers)


def _of_starlette(request: Request, error: HTTPException) -> RequestRefused:
    if error.status_code == 405:
        return RequestRefused(20405, f"Method {request.method} not allowed")
    return RequestRefused(20404, f"The requested resource {request.url.path} was not found")


_METHODS = {"GET", "POST"}


class FormFields:
    """The fields of a form or a query; raises Refused if a field is unknown."""

    def __init__(self, pairs: list[tuple[str, str]], known: Collection[str]) -> None:
        strange = {name for name, _ in pairs} - set(known)
        if strange:
            raise RequestRefused(20001, f"Unknown parameters: {', '.join(sorted(strange))}")
        self._pairs = pairs

    def get(self, name: str) -> str | None:
        """Return the last value of a field; None if there is none, or an empty one."""
        found = [value for one, value in self._pairs if one == name]
        return found[-1] if found and found[-1] else None

    def all(self, name: str) -> list[str]:
        """Return all values of a field."""
        return [value for one, value in self._pairs if one == name and value]

    def phone(self, name: str, *, missing: int, invalid: int) -> str:
        """Return a field that is a phone number.

        Raises:
            RequestRefused: with the code `missing` or `invalid`.
        """
        value = self.get(name)
        if value is None:
            raise RequestRefused(missing, f"No '{name}' number is specified")
        if not is_phone(value):
            raise RequestRefused(
                invalid, f"The '{name}' number {value[:40]} is not a valid phone number"
            )
        return value

    def url(self, name: str, *, invalid: int) -> str | None:
        """Return a field that is an absolute URL; None if it is missing.

        Raises:
            RequestRefused: it is not a valid URL.
        """
        value = self.get(name)
        if value is None:
            return None
        try:
            parts = urlsplit(value)
            fits = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            fits = False
        if not fits or len(value) > 4_000:
            raise RequestRefused(invalid, f"{name} is not a valid URL: {value[:200]}")
        return value

    def method(self, name: str) -> str:
        """Return a field that is GET or POST (default: POST).

        Raises:
            RequestRefused: it is another method.
        """
        value = (self.get(name) or "POST").upper()
        if value not in _METHODS:
            raise RequestRefused(21207, f"{name} must be GET or POST")
        return value

    def number(self, name: str, usual: int, most: int) -> int:
        """Return a field that is a whole number from 0 to `most` (default: `usual`).

        Raises:
            RequestRefused: it is not.
        """
        value = self.get(name)
        if value is None:
            return usual
        if not value.isdecimal() or len(value) > 9 or int(value) > most:
            raise RequestRefused(20001, f"{name} must be a whole number up to {most}")
        return int(value)


def ref_of(url: str | None) -> str:
    """Return the caller's reference in a URL; empty if there is none."""
    found = parse_qs(urlsplit(url or "").query).get("ref", [])
    return found[0] if found else ""


async def read_body(request: Request, known: Collection[str]) -> FormFields:
    """Read the fields of a form; raises Refused if it is not valid, or a field is unknown."""
    return _read(await request.body(), known)


def read_query(request: Request, known: Collection[str]) -> FormFields:
    """Read the fields of the query; raises as `read_body`."""
    return _read(request.url.query, known)


def _read(form: str | bytes, known: Collection[str]) -> FormFields:
    try:
        return FormFields(read_form(form), known)
    except InvalidValue as error:
        raise RequestRefused(20001, error.message) from error


def check_caller(request: Request, account: str, secrets: Mapping[str, str]) -> None:
    """Authenticate a request about this account.

    Args:
        secrets: secrets by user name.

    Raises:
        RequestRefused: the credentials are wrong, or the request is about another account.
    """
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    try:
        name, _, secret = b64decode(credentials, validate=True).decode().partition(":")
    except ValueError:
        name = secret = ""
    real = secrets.get(name)
    fits = real is not None and hmac.compare_digest(real.encode(), secret.encode())
    if scheme.lower() != "basic" or not fits:
        raise RequestRefused(20003, "Authenticate")
    if request.path_params["account"] != account:
        raise RequestRefused(20404, f"The requested resource {request.url.path} was not found")
