"""Repairs: requests for help over HTTP, each offered to one technician after another."""

from __future__ import annotations
