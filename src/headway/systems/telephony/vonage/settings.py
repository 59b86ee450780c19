"""The table [telephony.vonage] of the settings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from pydantic import AfterValidator, Field

from headway.runtime.settings_table import BaseUrl, Span, Table


def _private_key(written: str) -> str:
    """The key in the one form that the official client takes, of PEM or of a file with it.

    Raises:
        ValueError: there is none.
    """
    if not written.lstrip().startswith("-----BEGIN"):
        try:
            written = Path(written).read_text(encoding="ascii")
        except (OSError, ValueError):
            message = "is neither a key in PEM nor a file that can be read"
            raise ValueError(message) from None
    try:
        key = load_pem_private_key(written.strip().encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, RSAPrivateKey):
        message = "is no private key of RSA without a password"
        raise ValueError(message)  # noqa: TRY004  (the only error that pydantic takes)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class VonageSettings(Table):
    """`[telephony.vonage]`.

    Attributes:
        application_id: of the application.
        private_key: of the application, in PEM; or the file that holds it.
        signature_secret: of the account, which signs its webhooks; without it all are refused.
        base_url: where the API is.
        timeout: until when a whole reply must be there, ms.
    """

    application_id: Annotated[str, Field(pattern=r"^[0-9a-fA-F-]{32,36}$")]
    private_key: Annotated[str, AfterValidator(_private_key), Field(repr=False)]
    signature_secret: Annotated[str | None, Field(min_length=8, repr=False)] = None
    base_url: BaseUrl = "https://api.nexmo.com"
    timeout: Annotated[Span, Field(ge=100, le=120_000)] = 10_000
