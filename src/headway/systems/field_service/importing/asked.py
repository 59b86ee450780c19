"""What the routes of imports are asked."""

from __future__ import annotations

from pydantic import Field

from headway.server.bodies.body import Asked


class ImportAsked(Asked):
    """How to import."""

    partial: bool = Field(
        default=False, description="Write the good rows though others are unusable."
    )
