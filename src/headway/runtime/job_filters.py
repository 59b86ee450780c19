"""The filters by which a program lists jobs."""

from __future__ import annotations

from typing import Any, TypedDict

import msgspec

from headway.contract.views import JobsQuery
from headway.core.errors import InvalidValue
from headway.core.state import State
from headway.runtime.kind import Kind
from headway.runtime.kind_options import refuse_unknown


class JobFilters(TypedDict, total=False):
    """Selects jobs; an omitted field matches any.

    Attributes:
        lane: only jobs in this lane.
        tenant: only jobs of this tenant; "" for jobs without one.
        kind: only jobs of this kind.
        states: only jobs in these states.
        key: only the job with this key; found at once if `tenant` is given.
        subject: only jobs with this subject; found at once if `tenant` is given.
        newest: list the newest jobs first.
        cursor: cursor of the previous page.
        limit: maximum number of jobs, 1 to 1000.
    """

    lane: str
    tenant: str
    kind: str | Kind[..., Any]
    states: tuple[str, ...]
    key: str
    subject: str
    newest: bool
    cursor: str | None
    limit: int


def read_filters(filters: JobFilters) -> JobsQuery:
    """Return the query that the filters select.

    Raises:
        InvalidValue: there is no such filter, or its value is invalid.
    """
    refuse_unknown(filters, JobFilters, "jobs cannot be selected by", "select by")
    given: dict[str, Any] = dict(filters)
    kind = given.get("kind")
    if isinstance(kind, Kind):
        given["kind"] = kind.name
    try:
        return msgspec.convert(given, JobsQuery)
    except msgspec.ValidationError as error:
        message = f"a filter of jobs is not valid: {error}"
        raise InvalidValue(
            message, hint=f'states are as ("dead",), of {", ".join(State)}'
        ) from None
