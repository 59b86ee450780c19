"""Twilio's signature: over the URL as it calls it, and the form's fields in order.

Source: Twilio, "Webhooks security"; its own RequestValidator decides where the text is silent.
"""

from __future__ import annotations

import hmac
from base64 import b64encode
from collections.abc import Sequence
from hashlib import sha256

from headway.core.errors import InvalidValue, Unauthenticated
from headway.server.hooks.request import HookRequest, read_form
from headway.server.hooks.signatures import any_same, refuse

SIGNATURE = "x-twilio-signature"
SETTINGS = "x-twilio-webhooks-signature-settings"
ALGORITHMS = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}

_PORTS = {"http": 80, "https": 443}


def check_twilio(
    request: HookRequest, *, auth_tokens: Sequence[str], shared_keys: Sequence[str] = ()
) -> None:
    """Lets a webhook pass that Twilio has signed.

    Nothing in it says when it was signed: it can be replayed, and must have no effect then.

    Args:
        request: as it came.
        auth_tokens: of the account.
        shared_keys: for webhooks that say they are signed with one.

    Raises:
        Unauthenticated: it is not signed, or not with one of these.
    """
    said = request.needed(SIGNATURE)
    algorithm, by_shared_key = _settings(request.header(SETTINGS) or "")
    keys = shared_keys if by_shared_key else auth_tokens
    tail = _signed_fields(request)
    expected = [
        b64encode(hmac.digest(key.encode(), (url + tail).encode("utf-8", "replace"), algorithm))
        for key in keys
        for url in both_ports(request.url)
    ]
    if not any_same(expected, said.encode("utf-8", "surrogatepass")):
        refuse()


def both_ports(url: str) -> tuple[str, str]:
    """A URL with its port and without; which one Twilio signs depends on who of it calls."""
    scheme, _, rest = url.partition("://")
    end = min((at for at in map(rest.find, "/?#") if at >= 0), default=len(rest))
    place, path = rest[:end], rest[end:]
    host, colon, port = place.rpartition(":")
    if not colon or not port.isdigit():
        host, port = place, str(_PORTS.get(scheme, 443))
    return f"{scheme}://{host}{path}", f"{scheme}://{host}:{port}{path}"


def _settings(header: str) -> tuple[str, bool]:
    said: dict[str, str] = {}
    for part in header.split(","):
        name, _, value = part.strip().partition("=")
        said[name] = value
    algorithm = said.get("algorithm") or "HMAC_SHA1"
    if algorithm.upper() not in ALGORITHMS:
        message = "the webhook is signed in a way that is not known"
        raise Unauthenticated(message, hint=f"known: {', '.join(ALGORITHMS)}")
    return ALGORITHMS[algorithm.upper()], bool(said.get("key"))


def _signed_fields(request: HookRequest) -> str:
    try:
        if request.is_form:
            pairs = sorted(set(read_form(request.body)))
            return "".join(name + value for name, value in pairs)
        told = request.asked("bodySHA256")
    except InvalidValue:
        refuse()
    # A body that is no form is signed by its hash, which stands in the signed URL.
    if told is None and not request.body:
        return ""
    real = sha256(request.body).hexdigest().encode()
    if told is None or not any_same([real], told.encode("utf-8", "replace")):
        refuse()
    return ""
