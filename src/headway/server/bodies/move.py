"""An operator's moves as requests ask for them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, model_validator

from headway.contract.operate import Verb
from headway.core.state import State
from headway.server.bodies.body import Body, Several
from headway.server.bodies.words import Name, Priority, TenantName, Text, When

MOST_MOVED = 10_000
"""Jobs of one request."""

Reason = Annotated[Text, Field(default="", description="Why; stands on the trail.")]


class ReasonBody(Body):
    """Why it is done."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"reason": "the customer asked for it"}]}
    )

    reason: Reason = ""


class EditBody(ReasonBody):
    """What to change about a job, and why; what is left out stays."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"priority": 1, "due": "20m", "reason": "it cannot wait"}]}
    )

    args: dict[str, Any] | None = Field(
        default=None, description="New arguments, in place of all the old."
    )
    priority: Priority | None = Field(default=None, description="Smaller first.")
    due: When | None = Field(default=None, description="When it is due.")

    @property
    def says_nothing(self) -> bool:
        """Whether nothing is to be changed."""
        return self.args is None and self.priority is None and self.due is None


class FilterBody(Body):
    """Which jobs; what is left out stands for any."""

    lane: Name | None = Field(default=None, description="Only of this lane.")
    tenant: TenantName | None = Field(default=None, description="Only of this tenant.")
    kind: Name | None = Field(default=None, description="Only of this kind.")
    subject: Name | None = Field(
        default=None, description="Only about this, among the tenant's jobs."
    )
    key: Name | None = Field(
        default=None, description="Only the job that has this key, among the tenant's."
    )
    states: Several[Annotated[State, Field(strict=False)]] | None = Field(
        default=None,
        min_length=1,
        max_length=len(State),
        description="Only in these; else those that the verb applies to. Of cancelled jobs, retry "
        "takes only those that are asked for.",
    )

    @property
    def names_something(self) -> bool:
        """Whether anything but a state is asked for."""
        given = (self.lane, self.tenant, self.kind, self.subject, self.key)
        return any(one is not None for one in given)


class MovesBody(EditBody):
    """One move on many jobs: those named, or those that fit a filter."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"verb": "retry", "filter": {"lane": "mail"}, "reason": "the mail server is back"},
                {"verb": "cancel", "ids": ["0197f2a0-6f5b-7c3e-9d55-0d3c1f0f8a11"]},
            ]
        }
    )

    verb: Literal["cancel", "retry", "run_now", "edit", "succeed", "kill"] = Field(
        description="What to do."
    )
    ids: Several[Annotated[str, Field(max_length=64)]] | None = Field(
        default=None, min_length=1, max_length=MOST_MOVED, description="The jobs."
    )
    filter: FilterBody | None = Field(
        default=None, description="Instead of ids; it must name more than states."
    )
    limit: int = Field(
        default=1_000, ge=1, le=MOST_MOVED, description="By filter: at most so many jobs."
    )
    dry: bool = Field(
        default=False, description="By filter: only count how many fit, up to the limit."
    )

    @model_validator(mode="after")
    def _one_of_two(self) -> MovesBody:
        if (self.ids is None) == (self.filter is None):
            message = "give either ids or a filter"
            raise ValueError(message)
        if self.filter is not None and not self.filter.names_something:
            message = "the filter names nothing but states"
            raise ValueError(message)
        if self.verb not in {"edit", "retry"} and not self.says_nothing:
            message = f"{self.verb} changes no argument, priority or due time"
            raise ValueError(message)
        if self.verb == "edit" and self.says_nothing:
            message = "edit is given nothing to change"
            raise ValueError(message)
        return self

    @property
    def move(self) -> Verb:
        """What to do."""
        return Verb(self.verb)
