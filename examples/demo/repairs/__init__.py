"""Repairs: requests sent over HTTP, each offered to one technician after another."""

from __future__ import annotations
