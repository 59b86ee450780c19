"""`headway send`: makes jobs."""

from __future__ import annotations
