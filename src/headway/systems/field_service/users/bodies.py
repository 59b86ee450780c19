"""Users as requests and rows say them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import ConfigDict, Field

from headway.server.bodies.body import Body, Several
from headway.systems.field_service.record_ids import RecordId
from headway.systems.field_service.record_words import PersonName, Word, not_null
from headway.systems.field_service.users.channels import Channel

MOST_WORDS = 20

Roles = Annotated[Several[Word], Field(max_length=MOST_WORDS, examples=[["Dispatcher"]])]
Channels = Annotated[
    Several[Channel], Field(max_length=MOST_WORDS, examples=[["text:+14155550100"]])
]


class UserBody(Body):
    """A user to be kept."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "Bo Li", "roles": ["Dispatcher"], "channels": ["text:+14155550100"]}
            ]
        }
    )

    id: RecordId | None = Field(default=None, description="Made of the name if not given.")
    name: PersonName = Field(description="For people.", examples=["Bo Li"])
    roles: Roles = Field(
        default=[], description="In any case; who is a Dispatcher is told when nobody takes a job."
    )
    channels: Channels = Field(
        default=[],
        description="In the order to be tried: text:<phone>, call:<phone>, or a URL of apprise.",
    )

    @property
    def values(self) -> dict[str, Any]:
        """What the record holds of it, but for the id."""
        return self.model_dump(exclude={"id"})


class UserChange(Body):
    """What is changed of a user; what is not said stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"roles": ["Dispatcher"]}]})

    name: PersonName | None = Field(default=None, description="For people.")
    roles: Roles | None = Field(default=None, description="All of them.")
    channels: Channels | None = Field(default=None, description="All of them, in their order.")

    @property
    def values(self) -> dict[str, Any]:
        """What was said.

        Raises:
            InvalidValue: something is to be null.
        """
        return not_null(self.model_dump(exclude_unset=True))
