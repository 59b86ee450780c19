"""Draws that depend on what they are for, and on nothing that was drawn before.

A scenario and its what-if thus give the same call the same length and the same fate, so that what
differs between them is what was changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TypeVar

Choice = TypeVar("Choice")


class Draws:
    """Numbers that look random and are the same for the same seed and purpose."""

    def __init__(self, seed: int) -> None:
        self._seed = blake2b(str(seed).encode(), digest_size=32).digest()

    def unit(self, *purpose: object) -> float:
        """A number between 0 and 1, both excluded.

        Args:
            purpose: what it is for; each purpose has a number of its own.

        Returns:
            The same number for the same seed and purpose.
        """
        text = "\x1f".join(map(str, purpose))
        digest = blake2b(text.encode(), digest_size=8, key=self._seed).digest()
        # 52 bits: that and a half still fits a float, and so never rounds to 1.
        return ((int.from_bytes(digest) >> 12) + 0.5) / 2**52

    def chance(self, share: float, *purpose: object) -> bool:
        """Return whether something happens that does so in this share of all cases."""
        return self.unit(*purpose) < share

    def choose(self, weights: Mapping[Choice, float], *purpose: object) -> Choice:
        """One of several, each as often as its weight says.

        Args:
            weights: at least one above 0.

        Returns:
            A key of the weights.
        """
        left = self.unit(*purpose) * sum(weights.values())
        chosen = next(iter(weights))
        for choice, weight in weights.items():
            if weight > 0:
                chosen = choice
                left -= weight
                if left < 0:
                    break
        return chosen
