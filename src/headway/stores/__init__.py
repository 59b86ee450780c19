"""The stores, which hold all state."""

from __future__ import annotations

from headway.stores.open import open_store

__all__ = ["open_store"]
