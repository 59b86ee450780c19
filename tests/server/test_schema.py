"""The API matches its description, from which requests are generated and replies checked."""

# Schemathesis has few type annotations.
# pyright: basic

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.errors import Unsatisfiable
from jsonschema_rs import is_valid
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.parameters import ParameterLocation

from headway.contract.definitions import Role
from tests.server.rig import serving
from tests.server.test_description import WHOLE

EXAMPLES = int(os.environ.get("HEADWAY_TEST_EXAMPLES", "12"))
"""Requests of each operation and mode; `make test` sends a third of them."""

NEVER_ENDS = ("/events",)
LEFT_OUT = frozenset(
    {
        # A valid request may still name a gate, a job or a time that does not exist.
        "positive_data_acceptance",
        # These checks follow links between operations, and the description has none.
        "use_after_free",
        "ensure_resource_availability",
    }
)


def described() -> dict[str, Any]:
    """Return the description as the server itself serves it."""
    return {**WHOLE, "paths": {k: v for k, v in WHOLE["paths"].items() if k not in NEVER_ENDS}}


load_all_checks()
REFUSED = [400, 401, 403, 404, 405, 406, 409, 413, 415, 422, 428, 429, 431]
CONFIG = schemathesis.Config.from_dict(
    {
        # Generated tokens would be replaced by the test's token before the request is sent, and a
        # request whose only fault was its token would then be expected to be refused.
        "generation": {"with-security-parameters": False},
        "checks": {"negative_data_rejection": {"expected-statuses": REFUSED}},
    }
)
SCHEMA = schemathesis.openapi.from_dict(described(), config=CONFIG)
QUERY = {
    f"{method.upper()} {path}": {
        # With the components, because a parameter may refer to them.
        one["name"]: {**one["schema"], "components": SCHEMA.raw_schema["components"]}
        for one in operation.get("parameters", ())
        if one["in"] == "query"
    }
    for path, operations in SCHEMA.raw_schema["paths"].items()
    for method, operation in operations.items()
}
OPERATIONS = {one.ok().label: one.ok() for one in SCHEMA.get_all_operations()}  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True, kw_only=True, slots=True)
class Served:
    url: str
    token: str


class InThread:
    """A server on its own event loop, for tests that cannot await."""

    def __init__(self) -> None:
        self.served: Served | None = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(30)

    async def _serve(self) -> None:
        async with serving(longest_wait_s=0.01) as rig:
            self._loop, self._end = asyncio.get_running_loop(), asyncio.Event()
            self.served = Served(url=rig.url, token=rig.tokens[Role.ADMIN])
            self._ready.set()
            await self._end.wait()

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture
def served() -> Iterator[Served]:
    # Empty each time: a refusal must not depend on what another case created.
    thread = InThread()
    assert thread.served is not None
    yield thread.served
    thread.end()


REJECTION: Any = CHECKS.get_one("negative_data_rejection")


def wrong_only_before_it_is_sent(case: schemathesis.Case) -> bool:
    """Return whether the query's faults vanish in the URL, where `true` is the text "true"."""
    if case.meta is None or not case.meta.is_negative_at(ParameterLocation.QUERY):
        return False
    if sum(component.mode.is_negative for component in case.meta.components.values()) > 1:
        return False
    params = case.as_transport_kwargs()["params"]
    url = requests.Request("GET", "http://server", params=params).prepare().url
    sent = parse_qs(urlsplit(url or "").query, keep_blank_values=True)
    return sent.keys() <= QUERY[case.operation.label].keys() and all(
        any(is_valid(schema, value) for value in read(sent[name]))
        for name, schema in QUERY[case.operation.label].items()
        if name in sent
    )


def read(texts: list[str]) -> Iterator[object]:
    """Yield the possible meanings of a parameter's texts: a list, a text, a number or a boolean."""
    yield texts
    if len(texts) == 1:
        yield texts[0]
        with suppress(ValueError):
            yield json.loads(texts[0])


@pytest.mark.parametrize(
    "examples",
    [EXAMPLES // 6, pytest.param(EXAMPLES, marks=pytest.mark.slow)],
    ids=["some", "many"],
)
@pytest.mark.parametrize("mode", list(GenerationMode), ids=str)
@pytest.mark.parametrize("label", OPERATIONS)
def test_replies_match_the_description(
    label: str, mode: GenerationMode, examples: int, served: Served
) -> None:
    operation = OPERATIONS[label]
    left_out: list[Any] = [CHECKS.get_one(name) for name in LEFT_OUT]
    headers = {"Authorization": f"Bearer {served.token}"}

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),  # pyright: ignore[reportArgumentType]
    )
    def holds(case: schemathesis.Case) -> None:
        excluded = left_out + ([REJECTION] if wrong_only_before_it_is_sent(case) else [])
        case.call_and_validate(base_url=served.url, headers=headers, excluded_checks=excluded)

    try:
        holds()
    except Unsatisfiable:
        # The operation takes no input that could be invalid.
        assert mode is GenerationMode.NEGATIVE


def test_essential_checks_are_among_those_made() -> None:
    made = {check.__name__ for check in CHECKS.get_all()} - LEFT_OUT
    assert {
        "not_a_server_error",
        "status_code_conformance",
        "content_type_conformance",
        "response_schema_conformance",
        "negative_data_rejection",
        "ignored_auth",
    } <= made
