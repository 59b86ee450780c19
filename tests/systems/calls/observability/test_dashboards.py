from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from headway.core.duration import parse_duration
from headway.server.metrics import FAMILIES as ENGINE
from headway.systems.calls.alert_rules import Thresholds, call_rules
from headway.systems.calls.metrics import FAMILIES

promql = pytest.importorskip("promql_parser", reason="needs the package promql-parser")

ROOT = Path(__file__).parents[4]
FOLDER = ROOT / "docs" / "dashboards"
DASHBOARD = FOLDER / "headway-calls.json"
RULES = FOLDER / "headway-calls.rules.yml"
KNOWN = {family.name: family for family in (*ENGINE, *FAMILIES)}
ADDED = {"le", "job", "instance"}
"""Labels that Prometheus adds."""


def dashboard() -> dict[str, Any]:
    return json.loads(DASHBOARD.read_text("utf-8"))


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return group["rules"]


def expressions() -> Iterator[tuple[str, str, str]]:
    """Return each expression with its location, and the text shown with its labels."""
    for panel in dashboard()["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"], target["legendFormat"]
    for rule in rules():
        yield rule["alert"], rule["expr"], rule["annotations"]["summary"]


def selectors(node: Any) -> Iterator[Any]:
    """Return all selectors of metrics in an expression."""
    if isinstance(node, promql.VectorSelector):
        yield node
    for name in ("vector_selector", "expr", "lhs", "rhs", "param"):
        child = getattr(node, name, None)
        if child is not None and not isinstance(child, str):
            yield from selectors(child)
    for child in getattr(node, "args", None) or ():
        yield from selectors(child)


ALL = list(expressions())


@pytest.mark.parametrize(("where", "text", "shown"), ALL, ids=[f"{w}: {t[:40]}" for w, t, _ in ALL])
def test_every_expression_is_promql_of_existing_metrics_and_labels(
    where: str, text: str, shown: str
):
    found = list(selectors(promql.parse(text)))
    assert found, where
    # Every metric name in the text belongs to a selector, so the walk has missed none.
    assert {one.name for one in found} == set(re.findall(r"\bheadway_\w+", text))
    labels: set[str] = set()
    for one in found:
        family = KNOWN[one.name]
        labels |= {*family.labels, *ADDED}
        asked = {each.name for each in one.matchers.matchers}
        assert asked <= {*family.labels, *ADDED}, (where, one.name)
    grouped = {
        label.strip() for by in re.findall(r"\bby \(([^)]*)\)", text) for label in by.split(",")
    }
    named = set(re.findall(r"\{\{\s*(?:\$labels\.)?(\w+)\s*\}\}", shown))
    assert grouped <= labels
    assert named <= grouped


def test_invalid_expression_and_unknown_metric_are_found():
    with pytest.raises(ValueError, match=r"unclosed|unexpected"):
        promql.parse("max(headway_calls_overdue")
    (one,) = selectors(promql.parse('max(rate(headway_calls_nothing{a="b"}[5m]))'))
    assert one.name not in KNOWN
    assert [each.name for each in one.matchers.matchers] == ["a"]


def test_every_metric_of_calls_is_drawn_or_alerted_on():
    text = DASHBOARD.read_text("utf-8") + RULES.read_text("utf-8")
    told_by_requests = {"headway_calls_intakes_total", "headway_calls_intakes_failed_total"}
    missing = {one.name for one in FAMILIES if one.name not in text}
    assert missing == told_by_requests


def test_panels_have_their_own_ids_and_do_not_overlap():
    taken: set[tuple[int, int]] = set()
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        at = panel["gridPos"]
        assert at["x"] + at["w"] <= 24
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells


def test_prometheus_has_a_rule_for_each_server_rule_with_its_severity_and_runbook():
    severities = {rule.name: str(rule.severity) for rule in call_rules(Thresholds())}
    assert {rule["alert"]: rule["labels"]["severity"] for rule in rules()} == severities
    for rule in rules():
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert anchor == rule["alert"]
        headings = (ROOT / page).read_text("utf-8").splitlines()
        assert f"### {anchor}" in headings


def test_prometheus_alerts_from_the_same_values_on():
    at = Thresholds()
    by_name = {rule["alert"]: rule for rule in rules()}
    waits = {name: parse_duration(rule["for"]) for name, rule in by_name.items() if "for" in rule}
    assert waits == {
        "dispatch_halted": at.dispatch_halted_for_ms,
        "no_number": at.no_number_for_ms,
        "latency_high": at.latency_high_for_ms,
        "no_leader": at.no_leader_for_ms,
    }
    numbers = {
        "dispatch_halted": f"> {at.dispatch_halted_more_than}",
        "orphan_webhook": f"[5m])) > {at.orphan_webhook_more_than}",
        "intake_failing": f"> {at.intake_failing_above} *",
        "latency_high": f"> {at.latency_high_above_ms // 1000}",
        "webhooks_lost": f"[15m])) > {at.webhooks_lost_more_than}",
        "workers_dying": f"< {at.workers_dying_above} *",
        "depth_high": f"> {at.depth_high_above}",
        "no_leader": f"> {at.no_leader_for_ms // 1000}",
        "one_tenant": f"> {at.one_tenant_above}",
    }
    for name, text in numbers.items():
        assert text in by_name[name]["expr"], name
