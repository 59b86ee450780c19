"""Phones that can be somebody's.

Source: ITU-T E.164 (lengths), E.212 and the North American Numbering Plan (shape of +1 numbers).
"""

from __future__ import annotations

import re

from headway.systems.calls.checks.check import Checked, Refused
from headway.systems.calls.checks.options import ValidityOptions

_E164 = re.compile(r"\+[1-9]\d{6,14}", re.ASCII)
_NORTH_AMERICA = re.compile(r"\+1[2-9]\d{2}[2-9]\d{6}", re.ASCII)


class Validity:
    """Refuses numbers that cannot exist, and countries that are not called."""

    def __init__(self, options: ValidityOptions) -> None:
        self._countries = options.countries

    async def check(self, lead: Checked) -> None:
        """Lets a phone pass that can be somebody's, in a country that is called.

        Raises:
            Refused: it cannot, or the country is not.
        """
        phone = lead.phone
        whole = _NORTH_AMERICA if phone.startswith("+1") else _E164
        if whole.fullmatch(phone) is None:
            why = "the phone is no number that can be assigned"
            raise Refused(why)
        if self._countries and not phone.startswith(self._countries):
            why = "the phone's country is not called"
            raise Refused(why)
