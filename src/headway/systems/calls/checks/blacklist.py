"""Phones that are never called."""

from __future__ import annotations

from headway.systems.calls.checks.check import Checked, Refused
from headway.systems.calls.checks.options import BlacklistOptions


class Blacklist:
    """Refuses phones that are listed, whole or by their beginning."""

    def __init__(self, options: BlacklistOptions) -> None:
        self._phones = frozenset(one for one in options.phones if not one.endswith("*"))
        self._starts = tuple(one[:-1] for one in options.phones if one.endswith("*"))

    async def check(self, lead: Checked) -> None:
        """Lets a phone pass that is not listed.

        Raises:
            Refused: it is.
        """
        if lead.phone in self._phones or lead.phone.startswith(self._starts):
            why = "the phone is on the blacklist"
            raise Refused(why)
