"""Users: recipients of messages, with their roles and channels; stored, changed, imported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, cast

from pydantic import AfterValidator, ConfigDict, Field
from sqlalchemy import Select, delete, insert, select
from sqlalchemy.ext.asyncio import AsyncSession

from headway.core.errors import InvalidValue
from headway.server.alerts.apprise_sink import is_known, scheme_of
from headway.server.bodies.base import FailFastList
from headway.server.paging import PageQuery
from headway.server.routing import router
from headway.systems.directory.importing import split_by
from headway.systems.directory.record_routes import RouteDescriptions, add_routes
from headway.systems.directory.records import NewRecord, PersonName, RecordChange, Records
from headway.systems.field_service.context import check_caller
from headway.systems.field_service.records import MAX_SKILL, RoleHeld, User, Word, skill_key
from headway.systems.field_service.request import NAME
from headway.systems.telephony.phone import check_phone

MOST_WORDS = 20
PHONES = ("text", "call")
"""Prefixes of channels that are phone numbers."""
MAX_CHANNEL = 1_000


def _channel(text: str) -> str:
    way, _, rest = text.partition(":")
    if way in PHONES:
        return f"{way}:{check_phone('it', rest)}"
    # The message omits the value, which may contain a password.
    if not is_known(text):
        message = "it is neither text:<phone>, call:<phone>, nor a URL that apprise supports"
        raise InvalidValue(message, hint="use for example text:+14155550100 or mailto://…")
    return text


_Channel = Annotated[
    str,
    Field(min_length=1, max_length=MAX_CHANNEL, examples=["text:+14155550100"]),
    AfterValidator(_channel),
]
"""A channel: `text:<phone>`, `call:<phone>`, or a URL of apprise."""

Roles = Annotated[FailFastList[Word], Field(max_length=MOST_WORDS, examples=[["Dispatcher"]])]
Channels = Annotated[
    FailFastList[_Channel], Field(max_length=MOST_WORDS, examples=[["text:+14155550100"]])
]


class UserBody(NewRecord):
    """A user to store."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"name": "Bo Li", "roles": ["Dispatcher"], "channels": ["text:+14155550100"]}
            ]
        }
    )

    name: PersonName = Field(description="Name, for people.", examples=["Bo Li"])
    roles: Roles = Field(
        default=[],
        description="Roles, case-insensitive; a Dispatcher is alerted if no technician accepts a "
        "job.",
    )
    channels: Channels = Field(
        default=[],
        description="Channels, in the order to try: text:<phone>, call:<phone>, or an apprise URL.",
    )


class UserChange(RecordChange):
    """Changes to a user; omitted fields stay unchanged."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"roles": ["Dispatcher"]}]})

    name: PersonName | None = Field(default=None, description="Name, for people.")
    roles: Roles | None = Field(
        default=None, description="New roles, which replace all the old ones."
    )
    channels: Channels | None = Field(
        default=None, description="New channels, in order, which replace all the old ones."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class UserView:
    """A user.

    Attributes:
        id: id, as used in paths.
        channels: channels, in the order to try. A URL may contain a password, so callers that
            cannot change it see only its beginning.
    """

    id: str
    name: str
    roles: tuple[str, ...]
    channels: tuple[str, ...]
    version: int


class UsersParams(PageQuery):
    """Filters for users."""

    role: str | None = Field(
        default=None,
        max_length=MAX_SKILL,
        description="Only users with this role; case-insensitive.",
    )


class Users(Records[User, UserBody]):
    """The users, identified by an id that may be derived from the name."""

    table = User
    body = UserBody
    shape = UserView
    system = NAME
    known: ClassVar[Sequence[str]] = ("id", "roles", "channels")
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {
        "roles": split_by(r"[;,|]"),
        # URLs may contain commas and semicolons, but no spaces.
        "channels": split_by(r"[\s|]+"),
    }

    def masked(self, record: User) -> Mapping[str, object]:
        """Return the channels with only the beginnings of URLs, which may contain passwords."""
        ways = {one: one.partition(":")[0] for one in record.channels}
        shown = (one if way in PHONES else scheme_of(one) for one, way in ways.items())
        return {"channels": list(shown)}

    def filtered(self, rows: Select[User], params: PageQuery) -> Select[User]:
        """Filter by role."""
        role = cast("UsersParams", params).role
        return rows if role is None else _with_role(rows, role)

    async def derive(self, session: AsyncSession, records: Sequence[User]) -> None:
        """Rewrite the roles that users are filtered by."""
        ids = [one.id for one in records]
        await session.execute(delete(RoleHeld).where(RoleHeld.user_id.in_(ids)))
        held = [
            {"role": role, "user_id": one.id}
            for one in records
            for role in set(map(skill_key, one.roles))
        ]
        if held:
            await session.execute(insert(RoleHeld), held)


def _with_role(rows: Select[User], role: str) -> Select[User]:
    held = RoleHeld.role == skill_key(role)
    return rows.join(RoleHeld, RoleHeld.user_id == User.id).where(held)


USERS = Users()


async def users_with_role(session: AsyncSession, role: str) -> list[User]:
    """Return the users with a role (case-insensitive), by id."""
    return list(await session.scalars(_with_role(select(User), role).order_by(User.id)))


ROUTES = router("system: field_service", operations="field_", prefix="/users")

add_routes(
    ROUTES,
    USERS,
    reach=check_caller,
    params=UsersParams,
    changed=UserChange,
    texts=RouteDescriptions(
        prefix="field",
        example="bo",
        add="Add a user; one with the role Dispatcher (case-insensitive) is alerted if no "
        "technician accepts a job.",
        change="Change a user, from the next alert on.",
        remove="Remove a user.",
        imported="Import CSV with the column name, and optionally id, roles, channels.\n\nUsers "
        "that "
        "already exist, by id, are changed.",
    ),
)
