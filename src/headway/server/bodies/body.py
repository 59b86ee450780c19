"""The base of all bodies, and of all that a query may ask."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Body(BaseModel):
    """A body: nothing unknown in it, and no value of another type than was asked for."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Asked(BaseModel):
    """What a query string asks: nothing unknown in it; its values are text by nature."""

    model_config = ConfigDict(extra="forbid", frozen=True)
