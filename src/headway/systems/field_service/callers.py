"""Callers that may deal with the directory of this system."""

from __future__ import annotations

from headway.server.access.caller import Caller
from headway.systems.field_service.names import OFFERS


def check_caller(caller: Caller) -> None:
    """Lets a caller pass whose token is for this system: not for some tenants, or other lanes.

    Raises:
        Forbidden: it is not.
    """
    caller.every_tenant()
    caller.check_lane(OFFERS)
