"""Built-in systems on the engine, each a package with its own routes."""

from __future__ import annotations
