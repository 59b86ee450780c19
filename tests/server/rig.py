"""A real server on a real store, with clients of every role."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx

from headway.contract.definitions import DefineRequest, Role, SetToken, TokenSpec
from headway.contract.store import Store
from headway.runtime.app import App
from headway.runtime.tokens import new_token
from headway.server.build import alive, build
from headway.server.listener import ListenAddress, Listener
from headway.server.service import ServerOptions, Service, System
from headway.stores import open_store

LIMIT_S = 120
"""How long a test waits for a reply before it fails."""


@dataclass(kw_only=True)
class Rig:
    """A server that runs in this process.

    Attributes:
        url: the URL where it listens.
        service: the service that its routes use.
        store: the store with the jobs.
        tokens: the text of one token for each role, named after its role.
        http: a client without a token.
    """

    url: str
    service: Service
    http: httpx.AsyncClient
    tokens: dict[Role, str] = field(default_factory=dict)

    @property
    def store(self) -> Store:
        return self.service.store

    async def token(
        self,
        *roles: Role,
        name: str = "",
        tenants: Sequence[str] | None = None,
        lanes: Sequence[str] | None = None,
        closes: Sequence[str] = (),
        expires_at: int | None = None,
    ) -> str:
        """Create a token in the store; return its text."""
        new = new_token()
        spec = TokenSpec(
            id=new.id,
            name=name or "+".join(roles),
            roles=roles,
            secrets=(new.secret,),
            tenants=None if tenants is None else tuple(tenants),
            lanes=None if lanes is None else tuple(lanes),
            closes=tuple(closes),
            expires_at=expires_at,
        )
        await self.store.define(DefineRequest(items=(SetToken(spec=spec),), author="the rig"))
        return new.text

    async def call(
        self, who: Role | str | None, method: str, path: str, body: Any = None, **more: Any
    ) -> httpx.Response:
        """Send one request as a role, with a token's text, or without a token."""
        headers = dict(more.pop("headers", {}))
        if who is not None:
            text = self.tokens[who] if isinstance(who, Role) else who
            headers["Authorization"] = f"Bearer {text}"
        if body is not None:
            more["json"] = body
        return await self.http.request(method, path, headers=headers, **more)

    async def ask(self, who: Role | str | None, path: str, **params: Any) -> Any:
        """Return the reply to a GET; it must be 200."""
        reply = await self.call(who, "GET", path, params=params)
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def send(self, who: Role | str | None = Role.PRODUCER, **job: Any) -> str:
        """Send a job; return its id."""
        reply = await self.call(who, "POST", "/v1/jobs", {"kind": "noop", **job})
        assert reply.status_code == 201, reply.text
        return reply.json()["id"]


@asynccontextmanager
async def serving(
    url: str = "memory://",
    *,
    tokens: bool = True,
    app: App | None = None,
    systems: Sequence[System] = (),
    port: int = 0,
    **options: Any,
) -> AsyncIterator[Rig]:
    """Run a server on a free port until the block exits.

    Args:
        url: URL of its store, which is opened and closed with the server; an App brings its own
            store.
        tokens: whether to create a token for each role; without tokens the server is open.
        app: the App whose kinds jobs are created with.
        systems: systems that it serves as well.
        port: port to listen on; 0 for any free port.
        options: options of the server.
    """
    async with AsyncExitStack() as stack:
        if app is None:
            store = open_store(url)
            stack.push_async_callback(store.close)
        else:
            store = app.store
        chosen = ServerOptions(**{"open_here": True, "chores": False, **options})
        service = Service(store, chosen, app=app)
        address = ListenAddress(port=port)
        listener = Listener(build(service, systems), address, on_stop=service.begin_stop)
        await stack.enter_async_context(alive(service, systems))
        running = asyncio.create_task(listener.run())
        stack.push_async_callback(_stop, listener, running)
        await listener.answers()
        http = httpx.AsyncClient(base_url=listener.url, timeout=LIMIT_S)
        await stack.enter_async_context(http)
        rig = Rig(url=listener.url, service=service, http=http)
        for role in Role if tokens else ():
            rig.tokens[role] = await rig.token(role)
        yield rig


async def _stop(listener: Listener, running: asyncio.Task[None]) -> None:
    listener.stop()
    await running
