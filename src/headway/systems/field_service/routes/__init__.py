"""The routes of this system."""

from __future__ import annotations
