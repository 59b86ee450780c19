"""A user as replies tell it."""

from __future__ import annotations

from dataclasses import dataclass

from headway.server.access.caller import Caller
from headway.server.access.permissions import Permission
from headway.systems.field_service.records import User
from headway.systems.field_service.users.channels import masked


@dataclass(frozen=True, kw_only=True, slots=True)
class UserView:
    """A user.

    Attributes:
        id: names the user in paths.
        name: for people.
        roles: as they were given.
        channels: in the order to be tried. Of a URL, which may hold a password, whoever cannot
            change it sees only how it begins.
        version: counts changes; the ETag.
    """

    id: str
    name: str
    roles: tuple[str, ...]
    channels: tuple[str, ...]
    version: int


def told(user: User, caller: Caller) -> UserView:
    """What is told of a user to a caller."""
    channels: list[str] = user.channels
    if Permission.DEFINE not in caller.may:
        channels = [masked(one) for one in channels]
    return UserView(
        id=user.id,
        name=user.name,
        roles=tuple(user.roles),
        channels=tuple(channels),
        version=user.version,
    )
