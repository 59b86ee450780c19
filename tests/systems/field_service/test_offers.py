"""Offers from outside: forms by HTTP, people at telephones, and what the record says then."""

from __future__ import annotations

from pathlib import Path

from tests.systems.field_service.field_rig import a_field


async def test_whoever_presses_one_has_the_request(tmp_path: Path):
    async with a_field(tmp_path) as field:
        await field.technician("ada", "accept")
        sent = await field.ask()
        assert sent["status"] == "dispatching"
        told = await field.becomes(sent["id"], "assigned")
        assert told["technician"] == "ada"
        assert [(one["technician"], one["said"]) for one in told["asked"]] == [("ada", "accepted")]
