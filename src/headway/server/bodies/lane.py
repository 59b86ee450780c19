"""What a lane carries, as a request says it."""

from __future__ import annotations

from typing import Annotated, Literal, cast

from pydantic import ConfigDict, Field

from headway.contract.definitions import LaneSpec
from headway.runtime.lanes import LaneOptions, read_lane
from headway.server.bodies.body import Body, few
from headway.server.bodies.words import Count, Positive, Span, TenantName

MOST_WEIGHTS = 1_000


class LaneBody(Body):
    """All that a lane carries; what is left out is as the engine has it."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"concurrency": 3, "target": "5s", "max_backlog": 100000}]}
    )

    concurrency: Count | None = Field(
        default=None, description="The most of its jobs in their handlers at once."
    )
    lease: Span | None = Field(
        default=None, description="How long a worker's runs live without a beat."
    )
    target: Span | None = Field(default=None, description="Its latency target, due to start.")
    fair: Literal["tenant"] | None = Field(
        default=None, description="Shares starts between tenants."
    )
    weights: Annotated[dict[TenantName, Positive], few(MOST_WEIGHTS)] = Field(
        default={}, max_length=MOST_WEIGHTS, description="Of tenants in a fair lane; else 1."
    )
    max_backlog: Count | None = Field(
        default=None, description="With more unfinished jobs, a new one is refused."
    )

    def spec(self, name: str) -> LaneSpec:
        """What stores keep of it.

        Raises:
            InvalidValue: there are weights, but the lane is not fair.
        """
        wanted = {
            "concurrency": self.concurrency,
            "lease": None if self.lease is None else f"{self.lease}ms",
            "target": None if self.target is None else f"{self.target}ms",
            "fair": self.fair,
            "weights": self.weights,
            "max_backlog": self.max_backlog,
        }
        options = {what: value for what, value in wanted.items() if value is not None}
        return read_lane(name, cast("LaneOptions", options))
