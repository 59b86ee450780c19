"""The gates that are declared, remembered for a moment: jobs name them at each request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from headway.contract.store import Store
from headway.contract.views import SpecsQuery
from headway.core.errors import UnknownGate
from headway.core.gates.spec import GateSpec
from headway.runtime.timing import Timing

FRESH_S = 5.0
"""Seconds for which what was read is believed; only zones and amounts could be outdated."""


class DeclaredGates:
    """Finds gates by the names under which they are declared."""

    def __init__(self, store: Store, timing: Timing) -> None:
        """Reads nothing yet.

        Args:
            store: where they are declared.
            timing: for the moments.
        """
        self._store = store
        self._timing = timing
        self._known: Mapping[str, GateSpec] = {}
        self._read_at = float("-inf")

    async def find(self, names: Iterable[str]) -> Mapping[str, GateSpec]:
        """All gates that are declared, these among them.

        Args:
            names: as declared, templates unresolved.

        Returns:
            The gates by name.

        Raises:
            UnknownGate: nothing declares one of the names.
        """
        wanted = set(names)
        if not wanted:
            return {}
        stale = self._timing.monotonic() - self._read_at > FRESH_S
        if stale or not wanted <= self._known.keys():
            self._known = {spec.name: spec for spec in await self._store.read(SpecsQuery())}
            self._read_at = self._timing.monotonic()
        missing = sorted(wanted - self._known.keys())
        if missing:
            message = f"nothing declares the gate {missing[0][:80]!r}"
            raise UnknownGate(message, hint="declare it first: PUT /v1/gates/NAME, or by an App")
        return self._known

    def forget(self) -> None:
        """The next look reads them again: they were changed."""
        self._read_at = float("-inf")
