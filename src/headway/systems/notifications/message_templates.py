"""Message templates in Jinja2, by channel: stored, imported, rendered, previewed.

They are sandboxed, and values in HTML are escaped; errors name the form and the line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Any, ClassVar, Literal, cast

from fastapi import Path
from jinja2 import Template, TemplateSyntaxError, UndefinedError
from pydantic import AfterValidator, ConfigDict, Field, model_serializer
from starlette.responses import Response

from headway.core.errors import InvalidValue, located
from headway.server.access import Reader
from headway.server.bodies.base import Body
from headway.server.paging import PageQuery
from headway.server.replies import answer, reply
from headway.server.routing import router
from headway.systems.directory.importing import json_of
from headway.systems.directory.record_routes import RouteDescriptions, add_routes
from headway.systems.directory.records import (
    MAX_ID,
    NewNamedRecord,
    PersonName,
    RecordChange,
    Records,
)
from headway.systems.notifications.context import TheContext, check_caller
from headway.systems.notifications.notification import NAME, Channel
from headway.systems.notifications.records import MessageTemplate
from headway.systems.notifications.template_costs import limited_work
from headway.systems.notifications.template_sandbox import Sandbox

MOST_RENDERED = 500_000
"""Maximum characters of one rendered text."""
MOST_SOURCE = 200_000
"""Maximum characters of a template."""
TemplateSource = Annotated[str, Field(max_length=MOST_SOURCE)]

Forms = Mapping[str, str]
"""A channel's templates by form: `title`, `text`, `html`."""


_PLAIN = Sandbox()
_HTML = Sandbox(autoescape=True)


@dataclass(frozen=True, slots=True)
class Rendered:
    """The rendered message of one channel; the title is one line, and may be empty."""

    title: str
    text: str
    html: str | None


def check_forms(forms: Forms) -> None:
    """Validate the templates of a channel.

    Raises:
        InvalidValue: a template has a syntax error, in which case the message has the form and the
            line, or is nested too deep.
    """
    for form, source in forms.items():
        _compiled(form, source)


def render(forms: Forms, data: Mapping[str, object]) -> Rendered:
    """Render the templates of a channel.

    Raises:
        InvalidValue: a name is not in the data, or the rendering fails or is too much work; the
            message has the form and the line.
    """
    html = forms.get("html")
    with limited_work():
        return Rendered(
            title=" ".join(_rendered("title", forms.get("title", ""), data).split()),
            text=_rendered("text", forms.get("text", ""), data),
            html=None if html is None else _rendered("html", html, data),
        )


@lru_cache(maxsize=1024)
def _compiled(form: str, source: str) -> Template:
    try:
        return (_HTML if form == "html" else _PLAIN).from_string(source)
    except TemplateSyntaxError as error:
        message = f"{form}, line {error.lineno}: {error.message}"
        raise InvalidValue(message, hint="use the syntax of Jinja2") from None
    # Python raises its own errors for deep nesting and for numbers with too many digits.
    except Exception as error:
        reason = str(error)[:200] or type(error).__name__
        message = f"{form}: it cannot be compiled: {reason}"
        raise InvalidValue(message, hint="write it in smaller parts") from error


def _rendered(form: str, source: str, data: Mapping[str, object]) -> str:
    if "{" not in source:
        return source
    template = _compiled(form, source)
    parts: list[str] = []
    length = 0
    try:
        for part in template.generate(data):
            parts.append(part)
            length += len(part)
            if length > MOST_RENDERED:
                break
    # A template can raise anything that its filters and its data's methods raise.
    except Exception as error:
        where = f"{form}, line {_line(error, template)}"
        hint = "pass it in data" if isinstance(error, UndefinedError) else "correct the template"
        message = f"{where}: {str(error)[:200] or type(error).__name__}"
        raise InvalidValue(message, hint=hint) from error
    if length > MOST_RENDERED:
        message = f"{form}: the result has more than {MOST_RENDERED} characters"
        raise InvalidValue(message, hint="shorten the template, or its data")
    rendered = "".join(parts)
    try:
        rendered.encode()
    except UnicodeEncodeError:
        message = f"{form}: the result contains half of a surrogate pair"
        raise InvalidValue(message, hint="write the character itself, without \\u") from None
    return rendered


def _line(error: BaseException, template: Template) -> int:
    """Return the line of the template that raised; Jinja2 writes it into the traceback."""
    line, trace = 1, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in {"<template>", template.filename}:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


DEFAULT = "default"
"""Key of the forms for all channels without their own."""


class FormsBody(Body):
    """The text of one channel, in Jinja2."""

    title: TemplateSource | None = Field(
        default=None, description="Subject of an e-mail, or title of a push notification."
    )
    text: TemplateSource = Field(description="Plain text.", examples=["Hello {{ name }}"])
    html: TemplateSource | None = Field(
        default=None, description="HTML for e-mail; values are escaped."
    )

    @model_serializer
    def _given(self) -> dict[str, str]:
        return {form: source for form, source in vars(self).items() if source is not None}


def _channels(value: dict[Any, FormsBody]) -> dict[Any, FormsBody]:
    for channel, forms in value.items():
        with located(f"{channel}."):
            check_forms(forms.model_dump())
    return value


_Channels = Annotated[
    dict[Literal["push", "sms", "email", "webhook", "apprise", "default"], FormsBody],
    Field(min_length=1, examples=[{"default": {"text": "Hello {{ name }}"}}]),
    AfterValidator(_channels),
]


class TemplateBody(NewNamedRecord):
    """A message template to store."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"id": "hello", "channels": {"default": {"text": "Hello {{ name }}"}}}]
        }
    )

    channels: _Channels = Field(description="Texts by channel, or `default` for all others.")


class TemplateChange(RecordChange):
    """Changes to a message template; omitted fields stay unchanged."""

    name: PersonName | None = None
    channels: _Channels | None = Field(
        default=None, description="New texts, which replace all the old ones."
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TemplateView:
    """A message template.

    Attributes:
        id: id, as used in paths and notifications.
        channels: title, text and html by channel.
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
        """Noun in its paths; other systems have templates, too."""
        return "message-template"


TEMPLATES = Templates()


def forms_of(template: MessageTemplate, channel: Channel) -> Forms:
    """Return the forms of a template for a channel.

    Raises:
        InvalidValue: there are none; as with `render`, the caller puts the channel before the
            message.
    """
    found = template.channels.get(channel) or template.channels.get(DEFAULT)
    if found is None:
        message = "text is missing"
        raise InvalidValue(message, hint=f"add channels.{channel}, or channels.{DEFAULT}")
    return cast("Forms", found)


ROUTES = router("system: notifications", operations="notify_", prefix="/message-templates")

add_routes(
    ROUTES,
    TEMPLATES,
    reach=check_caller,
    params=PageQuery,
    changed=TemplateChange,
    texts=RouteDescriptions(
        prefix="notify",
        example="hello",
        change="Change a message template, from the very next send on.",
        remove="Remove a message template; waiting notifications that name it fail.",
        imported="Import CSV with the columns id and channels (JSON), and optionally name.\n\n"
        "Templates that already exist are changed.",
    ),
)


class PreviewAsked(Body):
    """What to render."""

    channel: Channel = Field(strict=False, examples=["email"])
    data: dict[str, Any] = Field(default={}, examples=[{"name": "Ada"}])


PREVIEW = reply(
    "Preview",
    "A rendered message.",
    title=(str, "Title, on one line; may be empty."),
    text=(str, "Plain text."),
    html=(str | None, "HTML; null if there is none."),
)


@ROUTES.post("/{id}/preview", summary="Render a message template", response_model=PREVIEW)
async def preview(
    id: Annotated[str, Path(max_length=MAX_ID, examples=["hello"])],
    body: PreviewAsked,
    context: TheContext,
    caller: Reader,
) -> Response:
    """Render a template with the data of the request, as it would be sent; nothing is sent.

    Raises:
        InvalidValue: it cannot be rendered; the message has the channel, the form and the line.
    """
    check_caller(caller)
    async with context.directory.read() as session:
        found = await TEMPLATES.find(session, id)
    with located(f"{id}, {body.channel}."):
        return answer(render(forms_of(found, body.channel), body.data))
