"""Recurring work: when its entries fire."""

from __future__ import annotations
