"""Routers of this server: strict bodies, errors as problem details, the service as a dependency."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import APIRouter, Depends, Request
from starlette.convertors import PathConvertor, register_url_convertor

from headway.server.service import Service
from headway.server.strict_json import AnyType, Strict

PROBLEM: dict[str, Any] = {
    "description": "What is wrong, as RFC 9457 problem details.",
    "content": {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}},
}


class AnyText(PathConvertor):
    """The rest of a path, whatever is in it.

    Starlette's own ends before a line break: a lane with one would be out of reach, or be taken
    for the one without.
    """

    regex = "(?s:.*)"


register_url_convertor("path", AnyText())


def router(tag: str, *, prefix: str = "", any_type: bool = False) -> APIRouter:
    """Return an empty router."""
    return APIRouter(
        prefix=prefix,
        tags=[tag],
        route_class=AnyType if any_type else Strict,
        responses={"4XX": PROBLEM, "5XX": PROBLEM},
    )


async def the_service(request: Request) -> Service:
    """Return the service that the routes work with."""
    # Awaited though it waits for nothing: FastAPI calls what is not in another thread.
    return cast("Service", request.app.state.service)


TheService = Annotated[Service, Depends(the_service)]
"""As a parameter: `service: TheService`."""


def system_service(name: str) -> Any:  # noqa: ANN401  (FastAPI's own marker)
    """Return what a system has put into `Service.system_services`, for a parameter's annotation."""

    async def find(service: TheService) -> object:
        return service.system_services[name]

    return Depends(find)
