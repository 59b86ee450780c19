"""Message templates: what a notification says in each channel; kept, imported, previewed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, cast

from fastapi import Path
from pydantic import AfterValidator, ConfigDict, Field, model_serializer
from starlette.responses import Response

from headway.core.errors import InvalidValue, located
from headway.server.access.policy import Reader
from headway.server.bodies.base import Body
from headway.server.paging import PageQuery
from headway.server.replies.reply import answer, reply
from headway.server.routes.router import router
from headway.systems.directory.importing import json_of
from headway.systems.directory.record_routes import Texts, add_routes
from headway.systems.directory.records import (
    MAX_ID,
    NewNamedRecord,
    PersonName,
    RecordChange,
    Records,
)
from headway.systems.notifications.context import TheContext, check_caller
from headway.systems.notifications.names import NAME, Channel
from headway.systems.notifications.records import MessageTemplate
from headway.systems.notifications.rendering import Forms, Source, check_forms, render

DEFAULT = "default"
"""The forms for all channels that have none of their own."""


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
        with located(f"{channel}."):
            check_forms(forms.model_dump())
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
    system = NAME
    needed: ClassVar[Sequence[str]] = ("id", "channels")
    known: ClassVar[Sequence[str]] = ("name",)
    parsers: ClassVar[Mapping[str, Callable[[str], object]]] = {"channels": json_of}

    @property
    def noun(self) -> str:
        """As its paths have it: other systems have templates of their own."""
        return "message-template"


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
    reach=check_caller,
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
    context: TheContext,
    caller: Reader,
) -> Response:
    """Render a template with this data, as it would be sent; nothing is sent.

    Raises:
        InvalidValue: it cannot be rendered; the message has the channel, the form and the line.
    """
    check_caller(caller)
    async with context.directory.read() as session:
        found = await TEMPLATES.find(session, id)
    with located(f"{id}, {body.channel}."):
        return answer(render(forms_of(found, body.channel), body.data))
