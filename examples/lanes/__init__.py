"""The background jobs of a small board application, in five lanes."""

from __future__ import annotations
