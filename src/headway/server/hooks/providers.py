"""The webhook providers of a server, read from the `[hooks]` table of the settings."""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_der_public_key
from pydantic import BeforeValidator, Field
from starlette.exceptions import HTTPException
from starlette.requests import Request

from headway.contract.signals import Signal
from headway.core.errors import InvalidValue
from headway.core.naming import check_name
from headway.runtime.settings_table import Span, Table, read_table
from headway.runtime.timing import Timing
from headway.server.hooks.request import TOLERANCE_MS, HookRequest, received
from headway.server.hooks.sendgrid import SendGrid
from headway.server.hooks.signals import Reading, WebhookProvider
from headway.server.hooks.standard import StandardWebhooks
from headway.server.hooks.twilio import Twilio

SHORTEST_SECRET = 24
"""Minimum length of a Standard Webhooks secret in bytes, from its specification."""

_SECRET, _PUBLIC = "whsec_", "whpk_"


def _split_keys(value: object) -> object:
    """Split a string, as an environment variable has it, into its comma-separated keys."""
    if not isinstance(value, str):
        return value
    return tuple(one.strip() for one in value.split(",") if one.strip())


Keys = Annotated[
    tuple[Annotated[str, Field(min_length=8)], ...],
    BeforeValidator(_split_keys),
    Field(default=(), repr=False),
]


class TwilioTable(Table):
    """`[hooks.twilio]`."""

    auth_tokens: Keys = ()
    shared_keys: Keys = ()

    def provider(self) -> WebhookProvider:
        """Return the provider with these keys."""
        _require_keys("hooks.twilio", self.auth_tokens or self.shared_keys, 'auth_tokens = ["…"]')
        return Twilio(auth_tokens=self.auth_tokens, shared_keys=self.shared_keys)


class SendGridTable(Table):
    """`[hooks.sendgrid]`."""

    public_keys: Keys = ()
    tolerance: Span = TOLERANCE_MS
    only_refs: bool = False

    def provider(self) -> WebhookProvider:
        """Return the provider with these keys."""
        _require_keys("hooks.sendgrid", self.public_keys, 'public_keys = ["MFkw…"]')
        keys = [_p256("hooks.sendgrid.public_keys", one) for one in self.public_keys]
        return SendGrid(public_keys=keys, tolerance_ms=self.tolerance, only_refs=self.only_refs)


class StandardTable(Table):
    """`[hooks.standard.NAME]`."""

    keys: Keys = ()
    tolerance: Span = TOLERANCE_MS

    def provider(self, name: str) -> WebhookProvider:
        """Return the provider with this name and these keys."""
        where = f"hooks.standard.{name}"
        _require_keys(where, self.keys, 'keys = ["whsec_…"]')
        return StandardWebhooks(
            name=name,
            secrets=[_secret(where, one) for one in self.keys if not one.startswith(_PUBLIC)],
            public_keys=[_ed25519(where, one) for one in self.keys if one.startswith(_PUBLIC)],
            tolerance_ms=self.tolerance,
        )


def _require_keys(where: str, keys: tuple[str, ...], hint: str) -> None:
    if not keys:
        message = f"{where}: there is no key to verify its signatures with"
        raise InvalidValue(message, hint=hint)


class HooksTable(Table):
    """`[hooks]`."""

    twilio: TwilioTable | None = None
    sendgrid: SendGridTable | None = None
    standard: dict[str, StandardTable] = Field(default_factory=dict)


def read_hooks(written: Mapping[str, object]) -> dict[str, WebhookProvider]:
    """Return the configured providers by name, which is the last part of the URL.

    Raises:
        InvalidValue: the table contains an unknown key or an invalid value; the message names the
            setting, never the value.
    """
    table = read_table("hooks", HooksTable, written)
    found: dict[str, WebhookProvider] = {}
    if table.twilio is not None:
        found["twilio"] = table.twilio.provider()
    if table.sendgrid is not None:
        found["sendgrid"] = table.sendgrid.provider()
    for name, sender in table.standard.items():
        _check_name(name)
        if name in found or name in HooksTable.model_fields:
            message = f"hooks.standard.{name}: the name belongs to another provider"
            raise InvalidValue(message, hint="choose another name; it is the last part of the URL")
        found[name] = sender.provider(name)
    return found


def _check_name(name: str) -> None:
    check_name("provider", name)
    if not name.replace("-", "").replace("_", "").isalnum() or not name.isascii():
        message = f"the provider {name[:80]!r} cannot be the last part of a URL"
        raise InvalidValue(message, hint="use letters, digits, - and _")


def _p256(where: str, text: str) -> EllipticCurvePublicKey:
    lines = [line for line in text.splitlines() if not line.startswith("-----")]
    try:
        key = load_der_public_key(b64decode("".join(lines), validate=True))
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        return key
    message = f"{where}: a key is not a P-256 public key"
    raise InvalidValue(message, hint="copy the verification key from SendGrid")


def _secret(where: str, text: str) -> bytes:
    secret = _bytes(text.removeprefix(_SECRET))
    if secret is None or len(secret) < SHORTEST_SECRET:
        message = f"{where}: a key is not a secret of {SHORTEST_SECRET} bytes or more, in base64"
        raise InvalidValue(message, hint="use whsec_ and the output of: openssl rand -base64 32")
    return secret


def _ed25519(where: str, text: str) -> Ed25519PublicKey:
    data = _bytes(text.removeprefix(_PUBLIC))
    if data is None or len(data) != 32:
        message = f"{where}: a key is not an ed25519 public key"
        raise InvalidValue(message, hint="use whpk_ and 32 bytes in base64")
    return Ed25519PublicKey.from_public_bytes(data)


def _bytes(text: str) -> bytes | None:
    try:
        return b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        return None


class Hooks:
    """The webhook providers of a server, by the last part of their URLs."""

    def __init__(
        self, written: Mapping[str, object], *, public_url: str | None, timing: Timing
    ) -> None:
        """Read the `[hooks]` table of the settings."""
        self._providers = read_hooks(written)
        self._readings: dict[str, Reading] = {}
        self._public_url = public_url
        self._timing = timing

    def read_with(self, name: str, reading: Reading) -> None:
        """Replace how a provider's webhooks become signals; they are verified as before.

        Args:
            name: the provider. If the settings have no keys for it, its webhooks are refused.
        """
        self._readings[name] = reading

    async def take(self, name: str, request: Request) -> HookRequest:
        """Verify a request and return it as a webhook; routes of systems may use this too.

        Raises:
            HTTPException: with 404, if the provider is not configured.
            Unauthenticated: the request does not have a valid signature of the provider.
        """
        provider = self._providers.get(name)
        if provider is None:
            raise HTTPException(404)
        webhook = await received(request, self._public_url)
        provider.verify(webhook, self._timing.wall_at())
        return webhook

    def signals(self, name: str, request: HookRequest) -> Sequence[Signal]:
        """Return the signals of a verified webhook.

        Raises:
            InvalidValue: the webhook is malformed.
        """
        reading = self._readings.get(name) or self._providers[name].signals
        return reading(request)
