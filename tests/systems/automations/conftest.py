"""The command and an empty working folder, as the tests of the command have them."""

from __future__ import annotations

from tests.cli.conftest import folder, headway

__all__ = ["folder", "headway"]
