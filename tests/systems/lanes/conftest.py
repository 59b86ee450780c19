"""The command and an empty working folder, as in the tests of the command."""

from __future__ import annotations

from tests.cli.conftest import folder, headway

__all__ = ["folder", "headway"]
