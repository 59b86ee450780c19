"""The tables of the reference of calls, made of its settings, bodies and routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headway.core.duration import format_duration
from headway.systems.calls import OWN
from headway.systems.calls.source_table.shadow import Migration, ShadowBook
from headway.systems.calls.source_table.source_table import migration_routes
from headway.systems.calls.template import CallsSettings, TemplateBody
from tests.docs.docstrings import items

HEAD = ("key", "default", "meaning")
TABLES = frozenset({"template", "table", "migration", "alerts", "senders", "channels"})
"""Settings that are tables of their own."""


def routers() -> Sequence[APIRouter]:
    """Of the system; those of a migration ask nothing of it before they are called."""
    return (*OWN, migration_routes(cast("Migration", None), cast("ShadowBook", None)))


def settings() -> Iterable[tuple[str, ...]]:
    """The keys of [calls]."""
    return of_settings(CallsSettings)


def of_settings(of: type[BaseModel]) -> Iterable[tuple[str, ...]]:
    """The keys of a table of the settings, but for those that are tables of their own."""
    return _rows(of, items(of, "Attributes"), skip=TABLES)


def of_body(of: type[BaseModel]) -> Iterable[tuple[str, ...]]:
    """The fields of a body, as it describes them itself."""
    said = {name: field.description or "" for name, field in of.model_fields.items()}
    return _rows(of, said)


def template() -> Iterable[tuple[str, ...]]:
    """The fields of a template."""
    return of_body(TemplateBody)


def _rows(
    of: type[BaseModel], said: Mapping[str, str], skip: frozenset[str] = frozenset()
) -> Iterable[tuple[str, ...]]:
    for name, field in of.model_fields.items():
        if name not in skip:
            # What is None in the code is null where it is sent.
            yield f"`{name}`", _default(field), said[name].replace("None for", "null for")


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "needed"
    if value is None:
        return ""
    if any(isinstance(one, BeforeValidator) for one in field.metadata) and isinstance(value, int):
        return f'`"{format_duration(value)}"`'
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, str):
        return f'`"{value}"`'
    return f"`{value}`".replace("'", '"')
