"""The call centre: leads sent over HTTP, and calls from three numbers."""

from __future__ import annotations
