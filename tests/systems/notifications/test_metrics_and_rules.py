"""Metrics and alert rules: outcomes and lateness by channel, each rule close to its threshold."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.core.errors import InvalidValue
from headway.runtime.settings_table import read_table
from headway.systems.notifications.metrics import (
    FAMILIES,
    NotificationsOverview,
    Thresholds,
    notification_rules,
)
from headway.systems.notifications.sender import Refused
from headway.systems.notifications.settings import NotificationSettings
from tests.systems.notifications.notify_rig import notifying

# Raised by apprise's own imports.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr':DeprecationWarning")

CALM = NotificationsOverview(at=0, overdue_ms={}, closed={}, totals={})


def found(*sights: NotificationsOverview, **at: Any) -> dict[str, str]:
    """Return what each rule finds at the last of these looks."""
    rules = notification_rules(Thresholds.model_construct(**at))
    last: dict[str, str] = {}
    for overview in sights:
        last = {rule.name: one.text for rule in rules for one in rule.check(overview)}
    return last


def counted(at: int, event: str, **times: int) -> NotificationsOverview:
    totals = {(event, label.replace("__", ":")): n for label, n in times.items()}
    return replace(CALM, at=at, totals=totals)


async def test_outcomes_and_lateness_are_exported_by_channel(tmp_path: Path):
    async with notifying(tmp_path) as notify:
        await notify.ada(preferences={"opt_out": ["sms"]})
        notify.email.answers.append(Refused("550"))
        await notify.becomes(await notify.send(), "FAILED")
        await notify.becomes(await notify.send(), "SENT")
        await notify.becomes(await notify.send(channel="sms"), "SKIPPED")
        text = (await notify.call("GET", "/metrics")).text
        name = "headway_notifications"
        for outcome, channel in (("FAILED", "email"), ("SENT", "email"), ("SKIPPED", "sms")):
            line = f'{name}_total{{channel="{channel}",outcome="{outcome}"}} 1.0'
            assert line in text
        assert f'{name}_lateness_seconds_count{{channel="email"}} 2.0' in text
        assert f'{name}_lateness_seconds_bucket{{channel="email",le="+Inf"}} 2.0' in text
        assert f'{name}_channel_closed{{channel="sms"}} 0.0' in text
        for family in FAMILIES:
            assert f"# TYPE {family.name} {family.kind}" in text


def test_each_rule_alerts_above_its_threshold_and_not_below():
    away = replace(CALM, away="the directory at x does not answer")
    assert found(away, replace(away, at=119_999)) == {}
    assert found(away, replace(away, at=120_000)) == {
        "directory_away": "nothing has been sent for 2m: the directory at x does not answer"
    }
    late = replace(CALM, overdue_ms={"email": 60_001})
    assert found(late, replace(late, at=119_999)) == {}
    assert set(found(late, replace(late, at=120_000))) == {"notifications_overdue"}
    # A notification whose channel is closed waits for that, and is reported as such.
    shut = replace(late, closed={"email": "by job x: 429"})
    assert set(found(shut, replace(shut, at=600_000))) == {"channel_closed"}
    assert found(shut, replace(shut, at=599_999)) == {}
    zero = counted(0, "outcome")
    assert found(zero, counted(1, "outcome", email__FAILED=10, email__SENT=190)) == {}
    told = found(zero, counted(1, "outcome", email__FAILED=10, email__SENT=189))
    assert told == {"notifications_failing": "10 of 199 sends by email failed within 5m"}
    assert found(zero, counted(1, "outcome", email__FAILED=9)) == {}
    told = found(zero, counted(1, "outcome", sms__answer_lost=1))
    assert set(told) == {"answers_lost"}
    zero = counted(0, "late")
    assert found(zero, counted(1, "late", push__5000=990, push__inf=10)) == {}
    told = found(zero, counted(1, "late", push__5000=989, push__10000=11))
    assert set(told) == {"notifications_late"}


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"jiter": "5m"}, "notifications.jiter: there is no such setting"),
        ({"jitter": "soon"}, "notifications.jitter"),
        ({"channels": {"fax": {}}}, "notifications.channels.fax"),
        ({"channels": {"sms": {"rate": 0}}}, "notifications.channels.sms.rate"),
        ({"keep": "1h", "dedupe_window": "2h"}, "keep is shorter than dedupe_window"),
        ({"unsubscribe_url": "http://example.org"}, "notifications.unsubscribe_url"),
    ],
)
def test_unusable_setting_is_named(written: dict[str, Any], said: str):
    with pytest.raises(InvalidValue, match=said.replace(".", r"\.")):
        read_table("notifications", NotificationSettings, written)


def test_unusable_threshold_is_named():
    with pytest.raises(InvalidValue, match=r"notifications\.alerts\.lat: there is no such setting"):
        read_table("notifications.alerts", Thresholds, {"lat": 1})
    found = read_table("notifications.alerts", Thresholds, {"overdue_above": "2m"})
    assert found.overdue_above_ms == 120_000
