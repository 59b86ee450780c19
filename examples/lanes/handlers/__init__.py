"""One module for each type of job."""

from __future__ import annotations
