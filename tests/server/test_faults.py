"""The error for an invalid body: the location in the JSON, the allowed values, and the value."""

from __future__ import annotations

import importlib
import pkgutil
import re
import types
from collections.abc import Iterator
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from headway import systems
from headway.contract.definitions import Role
from headway.runtime.faults import InputFault, faults
from headway.runtime.settings_table import Span
from headway.server.bodies.jobs import OneOrMany
from headway.server.build import ROUTERS
from headway.server.hooks.signals import SignalBody
from tests.server.problems import problem
from tests.server.rig import serving

INTERNAL = re.compile(
    r"function-|constrained-|lax-or-strict|json-or-python|is-instance|literal\[|nullable|union"
    r"|type=|input_|pydantic|Input should|Value error|[A-Z][a-z]+Body|\[_|\{[a-z_]+\}|headway\."
)
"""Internal terms of the validator."""

WRONG: tuple[Any, ...] = (
    None,
    True,
    -1,
    10**12,
    1.5,
    "",
    "x",
    "\0",
    "y" * 5_000,
    [],
    ["z"],
    {},
    {"w": 1},
)


def wrong_values(annotation: Any, seen: frozenset[type] = frozenset()) -> Iterator[Any]:
    """Draw values most of which do not match an annotation, at any depth."""
    yield from WRONG
    yield from _nested(annotation, seen)


def _nested(annotation: Any, seen: frozenset[type]) -> Iterator[Any]:
    origin, within = get_origin(annotation), get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation in seen:
            return
        base = {
            name: get_args(field.annotation)[0]
            for name, field in annotation.model_fields.items()
            if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1
        }
        yield {**base, "unheard_of": 1}
        for name, field in annotation.model_fields.items():
            for value in wrong_values(field.annotation, seen | {annotation}):
                yield {**base, name: value}
    elif origin is list:
        yield from ([value] for value in wrong_values(within[0], seen))
    elif origin is dict:
        yield from ({"k": value} for value in wrong_values(within[1], seen))
    elif origin is Annotated:
        yield from _nested(within[0], seen)
    elif origin in {Union, types.UnionType}:
        for one in within:
            yield from _nested(one, seen)


def bodies() -> dict[str, Any]:
    """Return the annotation of each route's body, by route."""
    routers = [*ROUTERS]
    for module in pkgutil.walk_packages(systems.__path__, "headway.systems."):
        if "routes" in module.name:
            there = vars(importlib.import_module(module.name)).values()
            routers += [one for one in there if isinstance(one, APIRouter)]
    found: dict[str, Any] = {"POST /v1/signals/{key}": SignalBody}
    for router in routers:
        for route in router.routes:
            if isinstance(route, APIRoute) and route.body_field is not None:
                hints = get_type_hints(route.endpoint, include_extras=True)
                found[f"{min(route.methods)} {route.path}"] = hints[route.body_field.name]
    return found


BODIES = bodies()


def exists(fault: InputFault, body: Any) -> bool:
    """Return whether a fault's location is in the body, or would be if the key was present."""
    for step in fault.path[:-1]:
        is_key = isinstance(body, dict) and step in body
        if not is_key and not (isinstance(body, list) and isinstance(step, int)):
            return False
        body = body[step]
    return not fault.path or isinstance(body, dict | list)


def refusals(adapter: TypeAdapter[Any], body: object) -> list[Any]:
    """Return the validator's errors for a body; none if it is valid."""
    try:
        adapter.validate_python(body)
    except ValidationError as error:
        return list(error.errors())
    return []


@pytest.mark.sampled
@pytest.mark.parametrize("route", BODIES)
def test_faults_of_a_body_are_described_in_terms_of_its_json(route: str):
    adapter: TypeAdapter[Any] = TypeAdapter(BODIES[route])
    refused = 0
    for body in wrong_values(BODIES[route]):
        errors = refusals(adapter, body)
        found = faults(errors, body)
        refused += bool(errors)
        assert bool(found) == bool(errors), body
        for one in found:
            assert not INTERNAL.search(f"{one.where}: {one.what}"), (body, one)
            assert one.what != "it is not valid", (body, errors)
            assert exists(one, body), (body, one)
            assert len(one.what) <= 400
    assert refused > len(WRONG) // 2


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"kind": "k", "gates": [7]}, {"gates.0": "it should be text or an object, and is 7"}),
        ({"kind": "k", "gates": [""]}, {"gates.0": "it should have at least 1 characters"}),
        ({"kind": "k", "gates": [{}]}, {"gates.0.gate": "it is missing"}),
        (
            {"kind": "k", "gates": [{"gate": "a", "amount": 0}]},
            {"gates.0.amount": "it should be at least 1, and is 0"},
        ),
        (
            {"kind": "k", "priority": "x" * 99},
            {"priority": f'it should be a whole number, and is "{"x" * 60}"…'},
        ),
        ({"kin": "k"}, {"kind": "it is missing", "kin": "there is no such field"}),
        ([{"kind": "k"}, {"kind": None}], {"1.kind": "it should be text, and is null"}),
        (
            {"kind": "k", "on_deadline": "x"},
            {"on_deadline": "it should be 'dead' or 'retry', and is \"x\""},
        ),
    ],
)
def test_fault_names_the_place_what_is_allowed_and_the_value(body: Any, told: dict[str, str]):
    found = faults(refusals(TypeAdapter(OneOrMany), body), body)
    assert {one.where: one.what for one in found} == told


def test_discriminator_of_a_union_is_not_in_the_path():
    gates: TypeAdapter[Any] = TypeAdapter(BODIES["PUT /v1/gates/{name:path}"])
    for body, where in (
        ({"kind": "hours", "hours": 7}, ["hours"]),
        ({"kind": "hours", "hours": "09:00-18:00", "days": 7}, ["days"]),
        ({"kind": "hours", "hours": 7, "days": 7}, ["hours", "days"]),
        ({"kind": "slots"}, ["capacity"]),
        ({"kind": "none"}, [""]),
    ):
        assert [one.where for one in faults(refusals(gates, body), body)] == where


class Signed(BaseModel):
    """A body with a value that must not be shown."""

    webhook_secret: int
    name: int


def test_possibly_secret_value_is_not_shown():
    body = {"webhook_secret": "canary", "name": "ada"}
    secret, name = faults(refusals(TypeAdapter(Signed), body), body)
    assert secret.what == "it should be a whole number, and is a text of 6 characters"
    assert name.what == 'it should be a whole number, and is "ada"'


class Bounded(BaseModel):
    """A duration, and a number that may be written as text."""

    every: Annotated[Span, Field(ge=100, le=90_061_000)]
    count: Annotated[int, Field(ge=2)]


@pytest.mark.parametrize(
    ("every", "bound"), [("1ms", "at least 100ms"), ("2d", "at most 1d 1h 1m 1s")]
)
def test_limit_of_a_duration_has_a_unit_and_that_of_a_number_has_none(every: str, bound: str):
    body = {"every": every, "count": "1"}
    span, count = faults(refusals(TypeAdapter(Bounded), body), body)
    assert span.what == f'it should be {bound}, and is "{every}"'
    assert count.what == 'it should be at least 2, and is "1"'


async def test_server_reports_faults_the_same_on_every_path():
    async with serving() as rig:
        for path, body, where in (
            ("/v1/jobs", {"kind": "k", "gates": [7]}, "body.gates.0"),
            ("/v1/jobs/x/edit", {"priority": -1}, "body.priority"),
            ("/v1/claims", {"worker": "w", "lanes": 7}, "body.lanes"),
            ("/v1/settlements", {"worker": "w", "outcomes": [{"outcome": "x"}]}, "body.outcomes.0"),
        ):
            told = problem(await rig.call(Role.ADMIN, "POST", path, body), 422, "invalid_value")
            assert [one["where"] for one in told["errors"]] == [where]
            assert not INTERNAL.search(told["detail"])
        reply = await rig.call(Role.ADMIN, "GET", "/v1/jobs", params={"limit": "x"})
        (told,) = problem(reply, 422, "invalid_value")["errors"]
        assert told == {"where": "query.limit", "what": 'it should be a whole number, and is "x"'}
        key = {"headers": {"Idempotency-Key": "k" * 300}}
        reply = await rig.call(Role.ADMIN, "POST", "/v1/jobs", {"kind": "k"}, **key)
        (told,) = problem(reply, 422, "invalid_value")["errors"]
        assert (told["where"], "kkk" in told["what"]) == ("header.Idempotency-Key", False)
        reply = await rig.call(Role.ADMIN, "POST", "/v1/signals/k", {"event": 7, "note": "x"})
        detail = problem(reply, 422, "invalid_value")["detail"]
        assert detail == "the signal: event: it should be text, and is 7"
