"""Message templates: what a notification says in each channel; kept, imported, previewed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from fastapi import Path
from pydantic import AfterValidator, ConfigDict, Field, model_serializer
from starlette.responses import Response

from headway.core.errors import InvalidValue
from headway.server.access.caller import Caller, Permission
from headway.server.access.policy import needs
from headway.server.bodies.base import Body
from headway.server.paging import PageQuery
from headway.server.replies.reply import answer, reply
from headway.server.routes.router import TheService, router
from headway.systems.directory.record_routes import Texts, add_routes
from headway.systems.directory.records import (
    MAX_ID,
    NewNamedRecord,
    PersonName,
    RecordChange,
    Records,
)
from headway.systems.notifications.context import check_caller, directory_of
from headway.systems.notifications.names import Channel
from headway.systems.notifications.records import MessageTemplate
from headway.systems.notifications.rendering import (
    FORMS,
    MOST_SOURCE,
    Forms,
    check_forms,
    render,
)

DEFAULT = "default"
"""The forms for all channels that have none of their own."""

Source = Annotated[str, Field(max_length=MOST_SOURCE)]


class FormsBody(Body):
    """What one channel says, in Jinja2."""

    title: Source | None = Field(default=None, description="An e-mail's subject, a push's title.")
    text: Source = Field(description="Plain.", examples=["Hello {{ name }}"])
    html: Source | None = Field(default=None, description="For e-mail; values are escaped.")

    @model_serializer
    def _given(self) -> dict[str, str]:
        return {form: source for form, source in vars(self).items() if source is not None}


def _channels(value: dict[Any, FormsBody]) -> dict[Any, FormsBody]:
    for channel, forms in value.items():
        try:
            check_forms(forms.model_dump())
        except InvalidValue as error:
            message = f"{channel}.{error.message}"
            raise InvalidValue(message, hint=error.hint) from None
    return value


Channels = Annotated[
    dict[Literal["push", "sms", "email", "webhook", "apprise", "default"], FormsBody],
    Field(min_length=1, examples=[{"default": {"text": "Hello {{ name }}"}}]),
    AfterValidator(_channels),
]


class TemplateBody(NewNamedRecord):
    """A message template to be kept."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"id": "hello", "channels": {"default": {"text": "Hello {{ name }}"}}}]
        }
    )

    channels: Channels = Field(description="By channel, or `default` for all others.")


class TemplateChange(RecordChange):
    """What is changed of a message template; what is not said stays."""

    name: PersonName | None = None
    channels: Channels | None = Field(default=None, description="All of them.")


def json_of(text: str) -> object:
    """A column of an import that holds JSON.

    Raises:
        InvalidValue: it holds none.
    """
    try:
        return json.loads(text)
    except ValueError as error:
        message = f"{text[:40]!r} is not JSON: {error}"
        raise InvalidValue(message) from None


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateView:
    """A message template.

    Attributes:
        id: names it in paths and notifications.
        channels: by channel: title, text and html.
    """

    id: str
    name: str
    channels: dict[str, Any]
    version: int


class Templates(Records[MessageTemplate, TemplateBody]):
    """The message templates."""

    table = MessageTemplate
    body = TemplateBody
    shape = TemplateView
    needed: ClassVar[Sequence[str]] = ("id", "channels")
    known: ClassVar[Sequence[str]] = ("name",)
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {"channels": json_of}

    @property
    def noun(self) -> str:
        """As its paths have it: other systems have templates of their own."""
        return "message-template"

    def check(self, caller: Caller) -> None:
        """See `check_caller`."""
        check_caller(caller)


TEMPLATES = Templates()


def forms_of(template: MessageTemplate, channel: Channel) -> Forms:
    """What a template says in a channel.

    Raises:
        InvalidValue: it says nothing there.
    """
    found = template.channels.get(channel) or template.channels.get(DEFAULT)
    if found is None:
        message = f"the template {template.id!r} says nothing for {channel}"
        raise InvalidValue(message, hint=f"add channels.{channel}, or channels.{DEFAULT}")
    return cast("Forms", found)


ROUTES = router("system: notifications", prefix="/message-templates")

add_routes(
    ROUTES,
    TEMPLATES,
    directory=directory_of,
    asked=PageQuery,
    changed=TemplateChange,
    texts=Texts(
        prefix="notify",
        example="hello",
        change="Changes a message template; it holds for the very next send.",
        remove="Removes a message template; what still waits and names it fails.",
        imported="Imports CSV with the columns id and channels (JSON), and name if any.\n\nA "
        "template that exists already is changed.",
    ),
)


class PreviewAsked(Body):
    """What to render."""

    channel: Channel = Field(strict=False, examples=["email"])
    data: dict[str, Any] = Field(default={}, examples=[{"name": "Ada"}])


PREVIEW = reply(
    "Preview",
    "What the channel would say.",
    title=(str, "In one line; may be empty."),
    text=(str, "Plain."),
    html=(str | None, "Null for none."),
)


@ROUTES.post(
    "/{id}/preview",
    operation_id="notify_preview",
    summary="Render a message template",
    response_model=PREVIEW,
)
async def preview(
    id: Annotated[str, Path(max_length=MAX_ID, examples=["hello"])],  # noqa: A002  (the path's word)
    body: PreviewAsked,
    service: TheService,
    caller: Annotated[Caller, needs(Permission.READ)],
) -> Response:
    """Render a template with this data, as it would be sent; nothing is sent.

    Raises:
        InvalidValue: it cannot be rendered; the message has the channel, the form and the line.
    """
    TEMPLATES.check(caller)
    async with directory_of(service).read() as session:
        found = await TEMPLATES.find(session, id)
    try:
        shown = render(forms_of(found, body.channel), body.data)
    except InvalidValue as error:
        message = f"{id}, {body.channel}.{error.message}"
        raise InvalidValue(message, hint=error.hint) from None
    return answer({form: getattr(shown, form) for form in FORMS})
