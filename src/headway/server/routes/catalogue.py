"""The routers of the server, in the order of the documentation."""

from __future__ import annotations

from fastapi import APIRouter

ROUTERS: tuple[APIRouter, ...] = ()
"""Each resource's router; a system brings its own besides."""
