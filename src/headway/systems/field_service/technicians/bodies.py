"""Technicians as requests and rows say them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field

from headway.server.bodies.body import Body, Several
from headway.systems.field_service.bodies import Phone
from headway.systems.field_service.nearby.cells import DIGITS
from headway.systems.field_service.record_ids import RecordId
from headway.systems.field_service.record_words import PersonName, Word, not_null
from headway.systems.field_service.records import Channel

MOST_SKILLS = 50


def _to_digits(degrees: float) -> float:
    return round(degrees, DIGITS) + 0.0


def _east(degrees: float) -> float:
    east = _to_digits(degrees)
    return -180.0 if east == 180 else east


Lat = Annotated[float, Field(ge=-90, le=90, examples=[52.52]), AfterValidator(_to_digits)]
Lon = Annotated[float, Field(ge=-180, le=180, examples=[13.405]), AfterValidator(_east)]
Skills = Annotated[Several[Word], Field(max_length=MOST_SKILLS, examples=[["boiler", "gas"]])]
Means = Literal["voice", "text"]


class TechnicianBody(Body):
    """A technician to be kept."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "Ada King",
                    "phone": "+4915550100",
                    "lat": 52.52,
                    "lon": 13.405,
                    "skills": ["boiler", "gas"],
                }
            ]
        }
    )

    id: RecordId | None = Field(default=None, description="Made of the name if not given.")
    name: PersonName = Field(description="For people.", examples=["Ada King"])
    phone: Phone = Field(description="E.164; nobody else's.")
    lat: Lat = Field(description="Degrees north.")
    lon: Lon = Field(description="Degrees east.")
    skills: Skills = Field(default=[], description="In any case.")
    on_duty: bool = Field(default=True, description="Whether offers come.")
    channel: Means = Field(default="voice", description="Called, or written to.")

    @property
    def values(self) -> dict[str, Any]:
        """What the record holds of it, but for the id."""
        given = self.model_dump(exclude={"id"})
        return given | {"channel": Channel(self.channel)}


class TechnicianChange(Body):
    """What is changed of a technician; what is not said stays."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"on_duty": False}]})

    name: PersonName | None = Field(default=None, description="For people.")
    phone: Phone | None = Field(default=None, description="E.164; nobody else's.")
    lat: Lat | None = Field(default=None, description="Degrees north.")
    lon: Lon | None = Field(default=None, description="Degrees east.")
    skills: Skills | None = Field(default=None, description="All of them, in any case.")
    on_duty: bool | None = Field(default=None, description="Whether offers come.")
    channel: Means | None = Field(default=None, description="Called, or written to.")

    @property
    def values(self) -> dict[str, Any]:
        """What was said.

        Raises:
            InvalidValue: something is to be null.
        """
        given = not_null(self.model_dump(exclude_unset=True))
        return given | ({"channel": Channel(given["channel"])} if "channel" in given else {})
