"""The table [telephony.twilio] of the settings."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from headway.runtime.settings_table import BaseUrl, Span, Table
from headway.server.hooks.providers import Keys

BASE_URL = "https://api.twilio.com"


class TwilioSettings(Table):
    """`[telephony.twilio]`.

    Attributes:
        account_sid: of the account, `AC…`.
        auth_token: of the account.
        auth_tokens: several, while one replaces another: the first sends, all verify.
        api_key: `SK…`, to send with instead of the account's token.
        api_secret: of the key.
        base_url: where the API is.
        timeout: until when a whole reply must be there, ms.
        edge: where requests enter Twilio's network.
        region: where they are handled.
    """

    account_sid: Annotated[str, Field(pattern=r"^AC[0-9a-fA-F]{32}$")]
    auth_token: Annotated[str | None, Field(min_length=8, repr=False)] = None
    auth_tokens: Keys = ()
    api_key: Annotated[str | None, Field(pattern=r"^SK[0-9a-fA-F]{32}$")] = None
    api_secret: Annotated[str | None, Field(min_length=8, repr=False)] = None
    base_url: BaseUrl = BASE_URL
    timeout: Annotated[Span, Field(ge=100, le=120_000)] = 10_000
    edge: Annotated[str | None, Field(pattern=r"^[a-z0-9-]+$")] = None
    region: Annotated[str | None, Field(pattern=r"^[a-z0-9-]+$")] = None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.auth_token is None) == (not self.auth_tokens):
            message = "give auth_token, or auth_tokens: webhooks are checked with them"
            raise ValueError(message)
        if (self.api_key is None) != (self.api_secret is None):
            message = "give api_key and api_secret together, or neither"
            raise ValueError(message)
        if self.base_url != BASE_URL and (self.edge or self.region):
            message = "give base_url, or edge and region, which are parts of twilio's own address"
            raise ValueError(message)
        return self

    @property
    def tokens(self) -> tuple[str, ...]:
        """All of the account's tokens; the first one sends."""
        return self.auth_tokens if self.auth_token is None else (self.auth_token,)

    @property
    def user(self) -> tuple[str, str]:
        """Name and password to send with."""
        if self.api_key is not None and self.api_secret is not None:
            return self.api_key, self.api_secret
        return self.account_sid, self.tokens[0]
