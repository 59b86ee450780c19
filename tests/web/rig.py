"""A server with its dashboard, and a browser with any token."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any
from unittest.mock import patch

import httpx
from fastapi import FastAPI

from headway.contract.definitions import Role
from headway.server.build import build
from headway.server.service import Service, System
from headway.web.dashboard import add_dashboard
from headway.web.page import DashboardPage
from headway.web.sign_in import COOKIE
from tests.server import rig as server_rig
from tests.server.rig import Rig

HOSTILE = (
    "<script>window.evil=1</script>",
    '"><img src=x onerror="window.evil=1">',
    "javascript:window.evil=1",
    "{{ 7*7 }}{% raw %}",
    "a\N{RIGHT-TO-LEFT OVERRIDE}b\N{RIGHT-TO-LEFT MARK}c",
    "\x1b[31mred\x1b]0;title\x07",
    "tab\tline\nend\x7f",
    "x" * 500,
    "\N{REPLACEMENT CHARACTER}\N{ZERO WIDTH SPACE}",
)
"""Text that users may write into any name or text."""


@asynccontextmanager
async def dashboard(
    url: str = "memory://",
    *,
    tokens: bool = True,
    systems: Sequence[System] = (),
    pages: Sequence[DashboardPage] = (),
    **options: Any,
) -> AsyncIterator[Rig]:
    """Run a server with its dashboard until the block exits; the options are those of `serving`."""

    def with_dashboard(service: Service, systems: Sequence[System] = ()) -> FastAPI:
        app = build(service, systems)
        service.system_services["dashboard"] = add_dashboard(app, service, systems, pages)
        return app

    with patch.object(server_rig, "build", with_dashboard):
        async with server_rig.serving(url, tokens=tokens, systems=systems, **options) as rig:
            yield rig


@asynccontextmanager
async def signed_in(rig: Rig, who: Role | str | None) -> AsyncIterator[httpx.AsyncClient]:
    """Yield a client that keeps a token as a browser does, and sends forms as same-origin."""
    text = rig.tokens[who] if isinstance(who, Role) else who
    async with httpx.AsyncClient(
        base_url=rig.url,
        timeout=server_rig.LIMIT_S,
        headers={"Sec-Fetch-Site": "same-origin"},
        cookies=None if text is None else {COOKIE: text},
    ) as http:
        yield http


async def form_of(http: httpx.AsyncClient, path: str) -> dict[str, str]:
    """Return the hidden fields of a form, as a browser would send them."""
    reply = await http.get(path)
    assert reply.status_code == 200, reply.text
    html = re.sub(r"(?s)<header.*?</header>", "", reply.text)
    found = re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', html)
    return {name: value.replace("&amp;", "&").replace("&#34;", '"') for name, value in found}


async def do(
    http: httpx.AsyncClient, path: str, *, script: bool = False, **fields: str
) -> httpx.Response:
    """Open the form of an action, fill it in and submit it."""
    form = await form_of(http, path)
    headers = {"X-Headway-Script": "1"} if script else {}
    action = path.partition("?")[0]
    return await http.post(action, data={**form, **fields}, headers=headers)
