"""Access by the token's permissions, and none for tokens limited to some tenants or lanes."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.contract.definitions import Role
from tests.server.problems import problem
from tests.systems.notifications.notify_rig import notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")


async def test_each_route_needs_its_permission_and_the_whole_system(tmp_path: Path):
    async with notifying(tmp_path, work=False, tokens=True) as notify:
        await notify.ada()
        await notify.ok(
            "POST", "/message-templates", {"id": "hi", "channels": {"email": {"text": "x"}}}, 201
        )
        one = await notify.send(scheduled_at="1h")
        body = {"recipient": "ada", "channel": "email", "text": "x", "scheduled_at": "1h"}
        routes = [
            ("GET", "/recipients", None, Role.VIEWER),
            ("GET", "/recipients/ada/timeline", None, Role.VIEWER),
            ("GET", "/notifications", None, Role.VIEWER),
            ("GET", f"/notifications/{one}", None, Role.VIEWER),
            ("POST", "/message-templates/hi/preview", {"channel": "email"}, Role.VIEWER),
            ("POST", "/notifications", body, Role.PRODUCER),
            ("PATCH", "/recipients/ada", {"tz": "UTC"}, Role.ADMIN),
        ]
        some = await notify.rig.token(Role.ADMIN, tenants=["acme"], name="some")
        lanes = await notify.rig.token(Role.ADMIN, lanes=["main"], name="lanes")
        for method, path, given, role in routes:
            reply = await notify.rig.call(role, method, path, given)
            assert reply.status_code in {200, 201}, (path, reply.text)
            for other in (some, lanes):
                problem(await notify.rig.call(other, method, path, given), 403, "forbidden")
            problem(await notify.rig.call(None, method, path, given), 401, "unauthenticated")
        for method, path, given, role in routes[-2:]:
            wrong = Role.VIEWER if role is Role.PRODUCER else Role.PRODUCER
            problem(await notify.rig.call(wrong, method, path, given), 403, "forbidden")
        problem(
            await notify.rig.call(Role.VIEWER, "DELETE", f"/notifications/{one}"), 403, "forbidden"
        )


async def test_token_of_another_lane_creates_no_notification_and_breaks_no_listing(tmp_path: Path):
    async with notifying(tmp_path, work=False, tokens=True) as notify:
        await notify.ada()
        own = await notify.send(scheduled_at="1h")
        token = await notify.rig.token(Role.PRODUCER, Role.WORKER, lanes=["mine"])
        args = {"channels": ["email"], "category": "news", "level": "low"}
        job = {"kind": "notification", "lane": "mine", "subject": "ada"}
        for wrong in ({"level": "urgent"}, {"channels": ["fax"]}):
            reply = await notify.rig.call(token, "POST", "/v1/jobs", {**job, "args": args | wrong})
            problem(reply, 422, "invalid_arguments")
        made = await notify.rig.send(token, **job, args=args)
        claim = {"worker": "w", "lanes": "mine"}
        assert (await notify.rig.call(token, "POST", "/v1/claims", claim)).json()["jobs"]
        said = {"outcome": "succeeded", "job": made, "run": 1, "result": ["no", "record"]}
        body = {"worker": "w", "outcomes": [said]}
        assert (await notify.rig.call(token, "POST", "/v1/settlements", body)).is_success
        for path in ("/notifications", "/recipients/ada/timeline"):
            rows = (await notify.rig.ask(Role.VIEWER, path))["rows"]
            assert [one["id"] for one in rows] == [own]
        reply = await notify.rig.call(Role.VIEWER, "GET", f"/notifications/{made}")
        problem(reply, 404, "unknown_record")
