"""What a carrier is started with: the world's settings, and who may ask it."""

from __future__ import annotations

from hashlib import sha256
from typing import Annotated

from pydantic import Field

from headway.carrier.settings import SimulatedSettings

_SID = r"[0-9a-fA-F]{32}$"


class CarrierSettings(SimulatedSettings):
    """What a carrier is started with; account and token follow from the seed if not given.

    Attributes:
        account_sid: of the only account.
        auth_token: of the account; signs webhooks too.
        api_keys: more names and secrets that may ask.
    """

    account_sid: Annotated[str, Field(pattern="^AC" + _SID)] | None = None
    auth_token: Annotated[str, Field(min_length=8)] | None = Field(default=None, repr=False)
    api_keys: dict[Annotated[str, Field(pattern="^SK" + _SID)], str] = Field(
        default_factory=dict[str, str], repr=False
    )

    @property
    def account(self) -> str:
        """The id of the account."""
        return self.account_sid or f"AC{self._drawn('account')}"

    @property
    def token(self) -> str:
        """The token of the account."""
        return self.auth_token or self._drawn("token")

    def _drawn(self, what: str) -> str:
        return sha256(f"carrier:{self.seed}:{what}".encode()).hexdigest()[:32]
