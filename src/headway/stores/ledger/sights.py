"""What a process saw of the store last, and whether the store may be what it says it is."""

from __future__ import annotations

from typing import NamedTuple


class Sight(NamedTuple):
    """What a process saw of the store.

    Attributes:
        identity: written once, random.
        epoch: raised by an operator's word.
        epoch_at: when that was, by the store's time.
        high_water: the highest time ever used.
    """

    identity: int
    epoch: int
    epoch_at: int
    high_water: int

    def fits(self, before: Sight) -> bool:
        """Whether this may follow what was seen before.

        It may after an operator's word (a new epoch, begun later than all that was seen), and
        where the store is the same and no older.
        """
        if self.epoch > 1 and self.epoch_at >= before.high_water:
            return True
        if self.identity != before.identity or self.epoch < before.epoch:
            return False
        return self.epoch > before.epoch or self.high_water >= before.high_water


class Watch:
    """Compares each sight with the one before; kept while connections come and go.

    Only steps that have the turn look, one after another, so that sights come in their order.
    """

    def __init__(self) -> None:
        self._sight: Sight | None = None
        self._suspect: Sight | None = None

    @property
    def suspicious(self) -> bool:
        """Whether the store is another one, or older, than this process knows it."""
        return self._suspect is not None

    def look(self, sight: Sight) -> None:
        """Takes a sight, at the begin of a step."""
        if self._suspect is not None and sight.epoch <= self._suspect.epoch:
            return
        if self._sight is None or self._suspect is not None or sight.fits(self._sight):
            self._sight, self._suspect = sight, None
        else:
            self._suspect = sight

    def wrote(self, high_water: int) -> None:
        """A step has written the high-water mark."""
        if self._sight is not None and self._suspect is None:
            self._sight = self._sight._replace(high_water=high_water)

    def may_follow(self, sight: Sight) -> bool:
        """Whether a sight needs no second look."""
        known = self._sight
        return self._suspect is None and known is not None and sight.fits(known)
