"""A number: from where calls are made, and how many at once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class NumberStatus(StrEnum):
    """Whether a number may be called from."""

    AVAILABLE = "AVAILABLE"
    DISABLED = "DISABLED"


@dataclass(frozen=True, kw_only=True, slots=True)
class Number:
    """A number: from where calls are made.

    Attributes:
        number: E.164.
        provider: who places its calls, as [telephony] names it.
        maximum_channels: calls at once.
        status: whether it may be called from.
        reseller: whose leads alone it serves; null for all that have none of their own.
        pool: of a template's `numbers`; null for the reseller's, or the default pool.
    """

    number: str
    provider: str
    maximum_channels: int
    status: NumberStatus = NumberStatus.AVAILABLE
    reseller: str | None = None
    pool: str | None = None

    @property
    def channels(self) -> int:
        """Calls that may begin now."""
        return self.maximum_channels if self.status is NumberStatus.AVAILABLE else 0

    @property
    def gate(self) -> str:
        """The one pool that it is a member of; in two, its channels would be counted twice."""
        if self.pool is not None:
            return pool_gate(self.pool)
        return DEFAULT_POOL if self.reseller is None else reseller_gate(self.reseller)


DEFAULT_POOL = "calls.numbers"
"""The gate of the numbers that serve everybody."""


def reseller_gate(reseller: str) -> str:
    """The gate of a reseller's own numbers."""
    return f"{DEFAULT_POOL}:{reseller}"


def pool_gate(pool: str) -> str:
    """The gate of a named pool of numbers."""
    return f"calls.pool:{pool}"
