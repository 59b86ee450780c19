"""What a carrier is started with, and what its routes work with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Annotated

from pydantic import Field

from headway.carrier.settings import SimulatedSettings
from headway.carrier.world import World

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Services:
    """What the carrier's routes work with.

    Attributes:
        world: in which calls are made.
        account: the only one.
        secrets: of each name that may ask.
    """

    world: World
    account: str
    secrets: Mapping[str, str] = field(repr=False)
