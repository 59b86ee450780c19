"""Tokens as requests ask for them."""

from __future__ import annotations

from typing import Annotated

from pydantic import ConfigDict, Field

from headway.contract.tokens import Role
from headway.server.bodies.body import Body, Several
from headway.server.bodies.words import Name, Span, TenantName, When

MOST_NAMES = 1_000


class TokenBody(Body):
    """A token to be made."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "shop", "roles": ["producer"], "tenants": ["acme"], "expires": "90d"}
            ]
        }
    )

    name: Name = Field(description="For people; author on the trail.", examples=["shop"])
    roles: Several[Annotated[Role, Field(strict=False)]] = Field(
        min_length=1, max_length=len(Role), description="What it may do.", examples=[["producer"]]
    )
    tenants: Several[TenantName] | None = Field(
        default=None, min_length=1, max_length=MOST_NAMES, description="Only these; null for any."
    )
    lanes: Several[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_NAMES,
        description="Only these, or those that fit a pattern such as send_*; null for any.",
    )
    closes: Several[Name] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_NAMES,
        description="Gates that its runs may close in a settlement, by name or by a pattern such "
        "as rate:*; roles that may close gates need none.",
    )
    expires: When | None = Field(
        default=None, description="When it ends; null for never.", examples=["90d"]
    )


class RotateBody(Body):
    """For how long the old secret goes on."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"grace": "1h"}]})

    grace: Span = Field(default=0, description="After it, only the new secret is accepted.")
