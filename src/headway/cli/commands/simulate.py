"""`headway simulate`: a day in seconds, on virtual time."""

from __future__ import annotations
