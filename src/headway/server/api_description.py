"""What the API's description says beside the routes themselves."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

DESCRIPTION = """\
Dispatches work when it is due, to whoever is free, within the limits that the real world sets.

Send `Authorization: Bearer hw_…`; a server on loopback whose store has no token is open. Moments
in replies are milliseconds since 1970 UTC; in requests they may also be ISO 8601 with an offset.
Every error is a problem (RFC 9457) with a stable `code`. Every POST can be repeated safely: jobs by
their `id`, `key` or the header `Idempotency-Key`, claims by `request`, settlements by their run,
signals by their `event`.
"""

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "What is wrong, as RFC 9457 tells it.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "description": "A relative reference that names the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "One sentence for people."},
        "code": {"type": "string", "description": "A stable word for programs."},
        "hint": {"type": "string", "description": "How to mend it."},
        "instance": {"type": "string", "description": "Names the request, as the log does."},
        "errors": {
            "type": "array",
            "description": "Of a body that the model refuses: each place, and what is wrong there.",
            "items": {
                "type": "object",
                "properties": {"where": {"type": "string"}, "what": {"type": "string"}},
            },
        },
    },
    "examples": [
        {
            "type": "/problems/key_conflict",
            "title": "key conflict",
            "status": 409,
            "detail": "the key 'order-17' names a job with another body",
            "code": "key_conflict",
        }
    ],
}


def describe(app: FastAPI) -> None:
    """Adds to an app's description what all its routes share.

    FastAPI's own documentation of a refused body is left out: here that is a problem as well.
    """
    whole = app.openapi

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = whole()
            schemas: dict[str, Any] = schema.setdefault("components", {}).setdefault("schemas", {})
            schemas["Problem"] = PROBLEM_SCHEMA
            for name in ("HTTPValidationError", "ValidationError"):
                schemas.pop(name, None)
            for path in schema["paths"].values():
                for operation in path.values():
                    _drop_default(operation["responses"])
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = described


def _drop_default(responses: dict[str, Any]) -> None:
    content = responses.get("422", {}).get("content", {})
    if (
        content.get("application/json", {})
        .get("schema", {})
        .get("$ref", "")
        .endswith("/HTTPValidationError")
    ):
        del responses["422"]
