"""Lanes as users declare them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from headway.contract.definitions import LaneSpec
from headway.core.duration import parse_duration
from headway.core.errors import InvalidValue
from headway.core.gates.spec import check_count
from headway.core.naming import check_name


class LaneOptions(TypedDict, total=False):
    """What a lane carries.

    Attributes:
        concurrency: the most of its jobs in their handlers at once, over all workers.
        fair: "tenant" shares starts between tenants.
        weights: of tenants in a fair lane; 1 if not named.
        target: its latency target, from due to start.
        max_backlog: with more jobs that are not final, a send is refused.
        lease: how long a worker's runs live without a beat.
    """

    concurrency: int
    fair: Literal["tenant"]
    weights: Mapping[str, int]
    target: object
    max_backlog: int
    lease: object


def read_lane(name: str, options: LaneOptions) -> LaneSpec:
    """Read the declaration of a lane.

    Args:
        name: of the lane.
        options: as written.

    Returns:
        What stores keep of it.

    Raises:
        InvalidValue: an option is unknown or unusable.
    """
    lane = check_name("lane", name)
    unknown = sorted(options.keys() - LaneOptions.__annotations__.keys())
    if unknown:
        message = f"the lane {lane!r} has an unknown option {unknown[0]!r}"
        raise InvalidValue(message, hint=f"options are {', '.join(LaneOptions.__annotations__)}")
    fair, weights = options.get("fair"), options.get("weights", {})
    if fair not in {None, "tenant"}:
        message = f"fair of the lane {lane!r} is {fair!r:.40}"
        raise InvalidValue(message, hint='"tenant", or leave it out')
    if weights and fair is None:
        message = f"the lane {lane!r} has weights, but is not fair"
        raise InvalidValue(message, hint='add fair="tenant"')
    lease, target = options.get("lease"), options.get("target")
    return LaneSpec(
        name=lane,
        concurrency=_count(lane, "concurrency", options.get("concurrency")),
        lease_ms=None if lease is None else parse_duration(lease),
        target_ms=None if target is None else parse_duration(target),
        fair=fair,
        weights=tuple(
            (
                check_name("tenant", tenant, empty=True),
                check_count(f"the weight of {tenant!r}", n, least=1),
            )
            for tenant, n in weights.items()
        ),
        max_backlog=_count(lane, "max_backlog", options.get("max_backlog")),
    )


def _count(lane: str, what: str, value: int | None) -> int | None:
    return None if value is None else check_count(f"{what} of the lane {lane!r}", value, least=0)
