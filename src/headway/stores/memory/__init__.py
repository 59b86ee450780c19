"""The memory store: the reference model, the users' test double and the simulator's engine."""

from __future__ import annotations

from headway.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
