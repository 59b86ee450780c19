"""Ready-made programs on the engine, each a package with routes of its own."""

from __future__ import annotations
