"""The tables of the calls reference, generated from its settings, bodies and routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from fastapi import APIRouter
from pydantic import BaseModel, BeforeValidator
from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headway.core.duration import format_duration
from headway.systems.calls import OWN
from headway.systems.calls.source_table.migration import Migration
from headway.systems.calls.source_table.migration_routes import migration_routes
from headway.systems.calls.source_table.shadow import ShadowDecisions
from headway.systems.calls.template import CallsSettings, TemplateBody
from tests.docs.docstrings import items

HEAD = ("key", "default", "meaning")
TABLES = frozenset({"template", "table", "migration", "alerts", "senders", "channels"})
"""Settings that are separate tables."""


def routers() -> Sequence[APIRouter]:
    """Return the routers of the system; that of a migration uses its arguments only when called."""
    return (*OWN, migration_routes(cast("Migration", None), cast("ShadowDecisions", None)))


def settings() -> Iterable[tuple[str, ...]]:
    """Return the keys of [calls]."""
    return of_settings(CallsSettings)


def of_settings(of: type[BaseModel]) -> Iterable[tuple[str, ...]]:
    """Return the keys of a settings table, except for those that are separate tables."""
    return _rows(of, items(of, "Attributes"), skip=TABLES)


def of_body(of: type[BaseModel]) -> Iterable[tuple[str, ...]]:
    """Return the fields of a body, with its own descriptions."""
    said = {name: field.description or "" for name, field in of.model_fields.items()}
    return _rows(of, said)


def template() -> Iterable[tuple[str, ...]]:
    """Return the fields of a template."""
    return of_body(TemplateBody)


def _rows(
    of: type[BaseModel], said: Mapping[str, str], skip: frozenset[str] = frozenset()
) -> Iterable[tuple[str, ...]]:
    for name, field in of.model_fields.items():
        if name not in skip:
            # None in the code is sent as null.
            text = said[name].replace("None for", "null for")
            yield f"`{field.alias or name}`", _default(field), text


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
