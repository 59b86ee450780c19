"""The documentation of the API: its OpenAPI description, and GET /docs as one page.

The page has no scripts and loads nothing from other hosts.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

from fastapi import FastAPI
from fastapi.responses import HTMLResponse

DESCRIPTION = """\
Dispatches work when it is due, to free workers, within real-world limits.

Send `Authorization: Bearer hw_…`. A server on loopback whose store has no tokens is open. Times in
replies are milliseconds since 1970 UTC; in requests they can also be ISO 8601 with an offset. Every
error is a problem (RFC 9457) with a stable `code`. Every POST can be repeated safely: jobs by their
`id`, `key` or the `Idempotency-Key` header, claims by `request`, settlements by their run, signals
by their `event`.
"""

PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "title": "Problem",
    "description": "Error, as RFC 9457 problem details.",
    "required": ["type", "title", "status", "detail", "code"],
    "properties": {
        "type": {"type": "string", "description": "Relative URI reference that names the code."},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {
            "type": "string",
            "description": "What went wrong, in one human-readable sentence.",
        },
        "code": {"type": "string", "description": "Stable, machine-readable error code."},
        "hint": {"type": "string", "description": "How to fix it."},
        "instance": {"type": "string", "description": "Identifies the request, as in the log."},
        "errors": {
            "type": "array",
            "description": "For an invalid body: each location, and what is wrong there.",
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
    """Add the parts that all routes share to an app's OpenAPI description.

    FastAPI's own schema of an invalid body is removed, because the reply is a problem here, and so
    is the `Raises` section of a docstring, because the responses list the errors.
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
                    if "/HTTPValidationError'" in str(operation["responses"].get("422")):
                        del operation["responses"]["422"]
                    if said := operation.get("description"):
                        operation["description"] = said.partition("\n\nRaises:\n")[0]
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = described


_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2733; background: #fff; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid #d5dce4; }
summary { cursor: pointer; padding: .3rem 0; }
summary b { display: inline-block; min-width: 4.5rem; }
code, pre { font: 13px/1.45 ui-monospace, monospace; }
pre { background: #f3f5f8; padding: .7rem; overflow-x: auto; white-space: pre-wrap; }
details > div { margin: 0 0 1rem 4.7rem; }
@media (prefers-color-scheme: dark) {
  body { color: #d8dee6; background: #14181d; } h2 { border-color: #39424d; }
  pre { background: #1e242b; } a { color: #7db4ff; }
}
"""
_DIGEST = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
CSP = (
    f"default-src 'none'; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The page may load only its own style."""


def add_api_page(app: FastAPI) -> None:
    """Add the page to a server; the OpenAPI description omits it."""

    @app.get("/docs", include_in_schema=False, response_class=HTMLResponse)
    async def docs() -> HTMLResponse:
        return HTMLResponse(api_page(app.openapi()), headers={"Content-Security-Policy": CSP})


def api_page(schema: Mapping[str, Any]) -> str:
    """Render an OpenAPI 3.1 description as a page of HTML, with all text escaped."""
    info = schema["info"]
    by_tag: dict[str, list[str]] = {}
    for path, operations in schema["paths"].items():
        for method, operation in operations.items():
            (tag, *_) = operation.get("tags") or ("other",)
            by_tag.setdefault(tag, []).append("".join(_operation(method, path, operation)))
    sections = (f"<h2>{escape(tag)}</h2>{''.join(found)}" for tag, found in by_tag.items())
    schemas = schema.get("components", {}).get("schemas", {})
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>{escape(info['title'])} API</title><style>{_STYLE}</style></head><body>"
        f"<h1>{escape(info['title'])} {escape(info['version'])}</h1>"
        f"{_text(info.get('description', ''))}"
        '<p>For programs: <a href="/openapi.json">openapi.json</a></p>'
        f"{''.join(sections)}<h2>Schemas</h2>{''.join(_schema(*one) for one in schemas.items())}"
        "</body></html>"
    )


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"<details><summary><b>{escape(method.upper())}</b> <code>{escape(path)}</code> "
        f"{escape(operation.get('summary', ''))}</summary><div>"
    )
    yield _text(operation.get("description", ""))
    for one in operation.get("parameters", ()):
        needed = ", required" if one.get("required") else ""
        described = one.get("description", "")
        yield (
            f"<p><code>{escape(one['name'])}</code> ({escape(one['in'])}{needed}) "
            f"{escape(described)}</p>{_json(one.get('schema', {}))}"
        )
    if "requestBody" in operation:
        yield f"<p>Body</p>{_content(operation['requestBody'])}"
    for status, reply in operation.get("responses", {}).items():
        yield f"<p>{escape(status)}: {escape(reply.get('description', ''))}</p>{_content(reply)}"
    yield "</div></details>"


def _content(message: Mapping[str, Any]) -> str:
    return "".join(
        f"<p><code>{escape(kind)}</code></p>{_json(one.get('schema', {}))}"
        for kind, one in message.get("content", {}).items()
    )


def _schema(name: str, schema: object) -> str:
    return (
        f"<details><summary><code>{escape(name)}</code></summary>"
        f"<div>{_json(schema)}</div></details>"
    )


def _json(document: object) -> str:
    if not document:
        return ""
    shown = json.dumps(document, indent=2, ensure_ascii=False).replace("#/components/schemas/", "")
    return f"<pre>{escape(shown)}</pre>"


def _text(text: str) -> str:
    return "".join(f"<p>{escape(part)}</p>" for part in text.split("\n\n") if part.strip())
