"""The doctor's report on this system, over HTTP and by the command."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from headway.systems.directory.database import Directory
from headway.systems.field_service.records import SCHEMAS, User
from headway.systems.field_service.users import USERS
from tests.cli.conftest import Headway, folder, headway
from tests.systems.field_service.field_rig import a_field

__all__ = ["folder", "headway"]


async def test_doctor_warns_without_a_dispatcher_or_with_an_unreachable_one(tmp_path: Path):
    async with a_field(tmp_path, work=False) as field:

        async def found_warnings() -> list[str]:
            warnings = await field.rig.ask(None, "/field-service/doctor")
            return [one["found"] for one in warnings["warnings"]]

        (found,) = await found_warnings()
        assert "no user has the role Dispatcher" in found
        await field.user("dora", roles=("dispatcher",))
        (found,) = await found_warnings()
        assert "dora is a dispatcher and has no channel" in found
        await field.user("dan", "text:+15557770001", roles=("DISPATCHER",))
        assert len(await found_warnings()) == 1


async def test_server_that_can_reach_no_technician_says_so_at_its_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    async with a_field(tmp_path, work=False, lines={}) as field:
        warnings = await field.rig.ask(None, "/field-service/doctor")
    assert warnings["warnings"][-1]["subject"] == "telephony"
    said = [one.getMessage() for one in caplog.records if one.name == "headway.field_service"]
    assert said == [f"{warnings['warnings'][-1]['found']}: {warnings['warnings'][-1]['hint']}"]


def test_command_warns_where_the_system_is_configured(folder: Path, headway: Headway):
    def found_warnings() -> list[tuple[str, str]]:
        findings = headway("doctor", "--json").document["findings"]
        return [
            (one["health"], one["found"])
            for one in findings
            if one["subject"] in {"field_service", "dispatchers", "telephony"}
        ]

    headway("migrate")
    assert found_warnings() == []
    (folder / "headway.toml").write_text(
        '[telephony.simulated]\n[field_service.lines]\n"+15559990000" = 2\n'
    )
    assert found_warnings() == [("warning", "there is no directory yet")]

    async def make(user: User | None) -> None:
        directory = Directory("sqlite:///headway-directory.db")
        directory.needs(SCHEMAS[0])
        await directory.open()
        if user is not None:
            async with directory.change() as session:
                session.add(user)
                await session.flush()
                await USERS.derive(session, [user])
        await directory.close()

    asyncio.run(make(None))
    ((health, found),) = found_warnings()
    assert health == "warning"
    assert "no user has the role Dispatcher" in found
    dora = User(id="d", name="D", roles=["Dispatcher"], channels=["text:+15557770001"], version=1)
    asyncio.run(make(dora))
    assert found_warnings() == [("ok", "technicians and dispatchers can be reached")]
