"""A check: says whether a lead may be called."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """The lead that is checked.

    Attributes:
        id: of the lead.
        phone: E.164.
        tz: its zone.
        reseller: whose it is.
        template: by name.
        payload: what it carries; None for nothing.
    """

    id: str
    phone: str
    tz: str
    reseller: str
    template: str
    payload: Any


class Refused(Exception):
    """Raised by a check: the lead must not be called.

    Args:
        why: for people; the lead's reason from then on.
    """

    def __init__(self, why: str) -> None:
        super().__init__(why)
        self.why = why


class Check(Protocol):
    """One check, with its template's options."""

    async def check(self, lead: Checked) -> None:
        """Lets a lead pass that may be called.

        Raises:
            Refused: it may not.
        """
        ...
