from __future__ import annotations

from headway.contract.definitions import Role
from tests.server.rig import serving


async def test_each_role_is_the_one_of_its_token_and_without_one_a_call_is_refused():
    async with serving() as rig:
        for role in Role:
            assert (await rig.ask(role, "/v1/me"))["name"] == role
        refused = await rig.call(None, "GET", "/v1/me")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"] == "Bearer"


async def test_store_without_tokens_is_open_on_loopback():
    async with serving(tokens=False) as rig:
        assert (await rig.ask(None, "/v1/me"))["open"] is True
