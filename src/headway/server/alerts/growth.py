"""Growth: by how much counts have grown lately."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping

from headway.server.alerts.remembered import Noted


class Growth:
    """By how much counts have grown lately; what they were at the first look is not growth."""

    def __init__(self, within_ms: int) -> None:
        """Has seen nothing.

        Args:
            within_ms: what grew longer ago is forgotten.
        """
        self._within_ms = within_ms
        self._seen: Mapping[str, int] | None = None
        self._grown: dict[str, deque[tuple[int, int]]] = {}

    def note(self, counts: Mapping[str, int], at: int) -> dict[str, int]:
        """Says by how much each has grown.

        Args:
            counts: by label, as they are now.
            at: now, in ms.

        Returns:
            The growth by label, without those that have not grown.
        """
        before, self._seen = self._seen, dict(counts)
        for label, count in counts.items():
            grown = 0 if before is None else count - before.get(label, 0)
            if grown > 0:
                self._grown.setdefault(label, deque()).append((at, grown))
        for label, grown in list(self._grown.items()):
            while grown and at - grown[0][0] > self._within_ms:
                grown.popleft()
            if not grown:
                del self._grown[label]
        return {label: sum(count for _, count in grown) for label, grown in self._grown.items()}

    def noted(self, ahead_ms: int) -> Noted:
        """See `Memory.noted`."""
        grown = {
            label: [(at + ahead_ms, count) for at, count in each]
            for label, each in self._grown.items()
        }
        return Noted(seen=None if self._seen is None else dict(self._seen), grown=grown)

    def recall(self, noted: Noted, standing: Collection[str], ahead_ms: int) -> None:
        """See `Memory.recall`; what grew while nobody looked has grown at the next look."""
        del standing
        self._seen = noted.seen
        self._grown = {
            label: deque((at - ahead_ms, count) for at, count in each)
            for label, each in noted.grown.items()
        }
