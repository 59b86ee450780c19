"""Pseudo-random draws that are reproducible from a seed."""

from __future__ import annotations

from hashlib import sha1


def draw(seed: str) -> float:
    """A number from 0 to below 1 that looks random; the same seed gives the same.

    Args:
        seed: what it is drawn from.
    """
    # SHA-1 for its place in Redis, whose scripts must draw the same; 52 bits, exact in a double.
    drawn = sha1(seed.encode(), usedforsecurity=False).hexdigest()[:13]
    return int(drawn, 16) / 2**52
