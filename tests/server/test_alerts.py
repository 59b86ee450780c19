from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import headway as hw
from headway.contract.claims import BeatRequest, ClaimRequest
from headway.contract.definitions import CloseGate, DefineRequest
from headway.contract.extensions import Suspicion
from headway.contract.outcomes import Died, SettleRequest
from headway.runtime.settings_table import read_table
from headway.runtime.timing import Timing
from headway.server.alerts.apprise_sink import MOST_WAITING, AppriseAddress, AppriseSink, is_known
from headway.server.alerts.engine import (
    AlertSettings,
    engine_rule_set,
    rules,
)
from headway.server.alerts.rule_set import Alerts, AnyRuleSet, Facts, RuleSet, check_names
from headway.server.alerts.rules import Rule, RuleFinding, Severity
from headway.server.alerts.watch import (
    AGAIN_MS,
    CALM_MS,
    MOST_SUBJECTS,
    Alert,
    AlertSink,
    AlertThrottle,
    AlertWatcher,
)
from headway.server.build import start_alerts
from headway.server.overview import read_overview
from headway.server.service import ServerOptions, Service
from headway.stores import open_store
from headway.testing.clock import FakeClock
from headway.testing.faulty import Fault, FaultyStore
from tests.server.rig import serving

# apprise loads its services when the first address is added, and one of them imports imghdr.
pytestmark = pytest.mark.filterwarnings("ignore:'imghdr' is deprecated:DeprecationWarning")

LIMIT_S = 120
MINUTE = 60_000


class Hand(Timing):
    """A clock that the test advances."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


class RecordingSink:
    """A sink that records alerts."""

    def __init__(self) -> None:
        self.alerts: list[Alert] = []

    def send(self, alert: Alert) -> None:
        self.alerts.append(alert)

    def close(self) -> None: ...

    def take(self) -> list[tuple[str, str, bool]]:
        taken, self.alerts = self.alerts, []
        return [(one.rule, one.subject, one.healed) for one in taken]


class World:
    """A store, a watch over it, and a clock shared by both."""

    def __init__(self, rule_sets: Sequence[AnyRuleSet] = (), **settings: Any) -> None:
        self.rule_sets = rule_sets
        self.clock = FakeClock()
        self.store = FaultyStore(open_store("memory://", clock=self.clock))
        self.app = hw.App(store=self.store)
        self.timing = Hand()
        self.settings = AlertSettings.model_construct(**settings)
        self.told = RecordingSink()
        self.watch = self.another(self.told)

    def another(self, told: AlertSink) -> AlertWatcher:
        alerts = Alerts()
        alerts.off = self.settings.off
        return AlertWatcher(
            self.store,
            self.timing,
            rule_sets=[engine_rule_set(self.settings), *self.rule_sets],
            alerts=alerts,
            sinks=[told],
            each_ms=self.settings.each_ms,
        )

    def pass_by(self, ms: int) -> None:
        self.clock.advance(ms)
        self.timing.now += ms / 1000

    async def check(self, after_ms: int = 0) -> list[tuple[str, str, bool]]:
        self.pass_by(after_ms)
        await self.watch.check()
        return self.told.take()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.store.inner.close()


# ------------------------------------------------------------------------------------- rules


async def test_lane_with_due_jobs_and_no_worker_alerts_after_a_minute_and_heals(world: World):
    await world.app.send_async("noop", lane="calls")
    assert await world.check() == []
    assert await world.check(59_000) == []
    assert await world.check(1_000) == [("no_worker", "calls", False)]
    await world.store.beat(BeatRequest(worker="w", lanes=("calls",), lease_ms=10 * MINUTE))
    assert await world.check() == []
    assert await world.check(CALM_MS) == [("no_worker", "calls", True)]


async def test_paused_lane_and_lane_without_due_jobs_need_no_worker(world: World):
    await world.app.send_async("noop", lane="paused")
    await world.app.send_async("noop", lane="later", due="2100-01-01T00:00Z")
    await world.store.define(
        DefineRequest(items=(CloseGate(name="lane:paused", reason="x"),), author="t")
    )
    await world.check()
    assert await world.check(10 * MINUTE) == []


async def test_first_dead_job_of_a_lane_counts(world: World):
    await world.app.send_async("noop", lane="calls")
    assert await world.check() == []
    asked = ClaimRequest(worker="w", request=1, lanes=(("calls", 1),), lease_ms=MINUTE)
    (job,) = (await world.store.claim(asked)).jobs
    died = Died(job.id, job.run, reason="bad number")
    await world.store.settle(SettleRequest(worker="w", outcomes=(died,)))
    await world.watch.check()
    texts = [one.text for one in world.told.alerts if one.rule == "dead_jobs"]
    assert texts == ["1 job in the lane calls died within 15m; the lane has 1 dead job"]


async def die(world: World, request: int) -> None:
    await world.app.send_async("noop", lane="calls")
    asked = ClaimRequest(worker="w", request=request, lanes=(("calls", 1),), lease_ms=MINUTE)
    (job,) = (await world.store.claim(asked)).jobs
    await world.store.settle(
        SettleRequest(worker="w", outcomes=(Died(job.id, job.run, reason="bad number"),))
    )


async def test_tolerated_number_of_dead_jobs_does_not_alert_and_one_more_does():
    world = World(dead_jobs_more_than=2)
    assert await world.check() == []
    for request in (1, 2):
        await die(world, request)
    assert await world.check() == []
    await die(world, 3)
    assert await world.check() == [("dead_jobs", "calls", False)]
    await world.store.inner.close()


async def test_new_dead_jobs_of_a_lane_alert_and_old_ones_do_not(world: World):
    await die(world, 1)
    assert await world.check() == []
    await die(world, 2)
    await world.watch.check()
    (alert,) = world.told.alerts
    assert (alert.rule, alert.subject, alert.severity) == ("dead_jobs", "calls", Severity.P2)
    assert alert.text == "1 job in the lane calls died within 15m; the lane has 2 dead jobs"
    assert alert.runbook == "docs/how-to/observe.md#dead_jobs"
    world.told.take()
    assert await world.check(world.settings.dead_jobs_within_ms) == [("dead_jobs", "calls", False)]
    await world.check(1)
    assert await world.check(CALM_MS) == [("dead_jobs", "calls", True)]


async def test_lane_that_misses_its_target_alerts_with_the_difference(world: World):
    lanes = {"calls": "5s", "mails": "4s"}
    await world.store.beat(BeatRequest(worker="w", lanes=tuple(lanes), lease_ms=60 * MINUTE))
    for lane, target in lanes.items():
        world.app.lane(lane, target=target)
        await world.app.send_async("noop", lane=lane)
    assert await world.check(6_000) == []
    await world.check(MINUTE - 1)
    world.pass_by(1)
    await world.watch.check()
    for alert, (lane, target) in zip(world.told.alerts, lanes.items(), strict=True):
        assert (alert.rule, alert.subject) == ("lane_latency", lane)
        assert f"{lane} misses its target of {target}" in alert.text
        assert "only a free handler" in alert.text


async def test_unreachable_store_alerts_though_nothing_can_be_read(world: World):
    async def away(after_ms: int) -> list[tuple[str, str, bool]]:
        world.store.plan(Fault.REFUSE)
        return await world.check(after_ms)

    await world.app.send_async("noop", lane="calls")
    await world.check()
    assert world.watch._alerts.leads
    assert await away(14_000) == []
    assert not world.watch._alerts.leads
    assert await away(1_000) == [("store_away", "store", False)]
    assert await away(4 * MINUTE) == []
    assert await away(1 * MINUTE) == [("store_away", "store", False)]
    assert ("store_away", "store", True) not in await world.check(1)
    assert ("store_away", "store", True) in await world.check(CALM_MS)


async def test_hours_whose_horizon_is_not_extended_alert(world: World):
    hours = hw.Hours("office", "09:00-18:00", tz="UTC")

    @world.app.job(gates=[hours])
    async def work(job: hw.Job) -> None: ...

    await world.app.send_async(work)
    overview = await read_overview(world.store)
    (gate,) = [one for one in overview.gates if one.name == "office"]
    assert gate.horizon_at is not None
    (rule,) = (one for one in rules(AlertSettings()) if one.name == "horizon")
    assert rule.check(Facts(at=0, overview=overview)) == []
    within = AlertSettings().horizon_within_ms
    for left, count in ((within, 0), (within - 1, 1)):
        near = replace(gate, horizon_at=overview.stats.now + left)
        found = rule.check(Facts(at=0, overview=replace(overview, gates=(near,))))
        assert len(found or ()) == count
    for left, text in ((3_600_000, "for only 1h ahead"), (-1, "it is closed")):
        near = replace(gate, horizon_at=overview.stats.now + left)
        (found,) = rule.check(Facts(at=0, overview=replace(overview, gates=(near,)))) or ()
        assert found.subject == "office"
        assert text in found.text


async def test_failing_rule_silences_no_other(world: World, caplog: pytest.LogCaptureFixture):
    class Wrong:
        name = "wrong"
        severity = Severity.P3

        def check(self, facts: Facts) -> Sequence[RuleFinding]:
            raise ZeroDivisionError

    await world.app.send_async("noop", lane="calls")
    world.rule_sets = [book_of(Wrong(), Another(lambda _: [finding("line")]))]
    world.watch = world.another(world.told)
    assert await world.check() == [("another", "line", False)]
    assert "alert rule failed name=wrong" in caplog.text


# ------------------------------------------------------------------------ rules of a system


class Another:
    """A system's rule that returns the findings that the test sets."""

    name = "another"
    severity = Severity.P1

    def __init__(self, finds: Callable[[Facts], Sequence[RuleFinding] | None]) -> None:
        self.finds = finds

    def check(self, facts: Facts) -> Sequence[RuleFinding] | None:
        return self.finds(facts)


def book_of(
    *its: Rule[Facts], see: Callable[[Facts], Facts | None] = lambda facts: facts
) -> AnyRuleSet:
    async def seen(facts: Facts) -> Facts | None:
        return see(facts)

    return RuleSet(rules=lambda: its, read=seen, runbooks="page-of-the-system")


async def test_check_that_fails_unexpectedly_is_repeated(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    world = World(each_ms=1)
    lead, led, checked_again = world.store.lead, list[bool](), asyncio.Event()

    async def fails_once(*given: Any) -> Any:
        led.append(world.watch._alerts.leads)
        if len(led) == 2:
            message = "a bug"
            raise RuntimeError(message)
        if len(led) == 4:
            checked_again.set()
        return await lead(*given)

    monkeypatch.setattr(world.store, "lead", fails_once)
    watching = asyncio.create_task(world.watch.run())
    async with asyncio.timeout(LIMIT_S):
        await checked_again.wait()
    assert led == [False, True, False, True]
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    assert "RuntimeError: a bug" in caplog.text
    await world.store.inner.close()


async def test_systems_rules_alert_with_their_own_page_and_heal(world: World):
    wrong = [finding("line")]
    world.rule_sets = [book_of(Another(lambda _: wrong))]
    world.watch = world.another(world.told)
    await world.watch.check()
    (told,) = world.told.alerts
    assert (told.rule, told.subject) == ("another", "line")
    assert told.runbook == "page-of-the-system#another"
    world.told.take()
    assert await world.check(29 * MINUTE) == []
    assert await world.check(1 * MINUTE) == [("another", "line", False)]
    wrong.clear()
    await world.check(1)
    assert await world.check(CALM_MS) == [("another", "line", True)]


async def test_failing_system_silences_no_other_and_heals_nothing(
    world: World, caplog: pytest.LogCaptureFixture
):
    failing: list[Exception] = []

    def see(facts: Facts) -> Facts:
        if failing:
            raise failing[0]
        return facts

    world.rule_sets = [book_of(Another(lambda _: [finding("line")]), see=see)]
    world.watch = world.another(world.told)
    await world.app.send_async("noop", lane="calls")
    assert await world.check() == [("another", "line", False)]
    for error, reason in (
        (hw.StoreUnavailable("the directory is away"), ": the directory is away"),
        (TimeoutError(), ": timeout"),
        (ZeroDivisionError(), ""),
    ):
        failing[:] = [error]
        told = await world.check(MINUTE)
        assert ("another", "line", True) not in told
        assert f"could not be evaluated{reason}" in caplog.text
        caplog.clear()
    assert ("no_worker", "calls", False) not in await world.check(MINUTE)


async def test_new_leader_starts_with_fresh_rules(world: World):
    made: list[Another] = []

    def make() -> list[Another]:
        made.append(Another(lambda _: None))
        return made[-1:]

    async def see(facts: Facts) -> Facts:
        return facts

    world.rule_sets = [RuleSet(rules=make, read=see, runbooks="page")]
    world.watch = world.another(world.told)
    other = world.another(RecordingSink())
    await world.check()
    made.clear()
    world.pass_by(5 * MINUTE)
    await other.check()
    await world.check()
    assert len(made) == 1


def test_two_rules_of_one_name_are_refused():
    alerts = Alerts()
    alerts.add(book_of(Another(lambda _: None)))
    with pytest.raises(hw.InvalidValue, match="two alert rules are named 'another'"):
        alerts.add(book_of(Another(lambda _: None)))


async def test_systems_rule_can_be_disabled_by_name(world: World):
    world.rule_sets = [book_of(Another(lambda _: [finding("line")]))]
    world.settings = AlertSettings(off=frozenset({"another"}))
    world.watch = world.another(world.told)
    assert await world.check() == []


# ------------------------------------------------------------------------------ leadership


async def test_only_the_leading_server_alerts_and_another_takes_over(world: World):
    told = RecordingSink()
    other = world.another(told)
    await world.app.send_async("noop", lane="calls")
    for _ in range(2):
        await world.watch.check()
        await other.check()
        world.pass_by(MINUTE // 2)
    await world.watch.check()
    await other.check()
    assert (world.told.take(), told.take()) == ([("no_worker", "calls", False)], [])
    # The first server dies; the other one notices when the term is over, and waits a minute.
    for _ in range(5):
        world.pass_by(MINUTE // 2)
        await other.check()
    assert told.take() == [("no_worker", "calls", False)]


async def test_new_leader_repeats_standing_alerts(
    world: World,
):
    other = world.another(RecordingSink())
    await world.app.send_async("noop", lane="calls")
    await world.check()
    assert await world.check(MINUTE) == [("no_worker", "calls", False)]
    world.pass_by(MINUTE)
    await other.check()
    assert await world.check() == []
    world.pass_by(MINUTE)
    assert await world.check() == []
    assert await world.check(MINUTE) == [("no_worker", "calls", False)]


async def test_unreachable_store_is_also_reported_by_the_others_after_a_longer_wait(world: World):
    told = RecordingSink()
    other = world.another(told)
    await world.watch.check()
    await other.check()
    for _ in range(4):
        world.pass_by(10_000)
        world.store.plan(Fault.REFUSE)
        await other.check()
    assert told.take() == []
    world.pass_by(5_000)
    world.store.plan(Fault.REFUSE)
    await other.check()
    assert told.take() == [("store_away", "store", False)]


class Suspect(FaultyStore):
    """A store that another process found to be an older copy."""

    async def suspicion(self) -> Suspicion:
        return Suspicion(at=1, by="process 7", reason="the highest time it remembers is 5")

    async def new_epoch(self, author: str, reason: str) -> int: ...  # type: ignore[empty-body]  (not asked)
    async def reset_clock(self, author: str, reason: str) -> int: ...  # type: ignore[empty-body]  (not asked)


async def test_suspect_store_alerts_at_once_with_reason_and_remedy(world: World):
    world.store = Suspect(open_store("memory://", clock=world.clock))
    watch = world.another(world.told)
    await watch.check()
    (alert,) = world.told.alerts
    assert (alert.rule, alert.subject, alert.severity) == ("store_away", "store", Severity.P0)
    for part in ("nothing is claimed", "remembers is 5", "process 7", "--new-epoch"):
        assert part in alert.text


# -------------------------------------------------------------------------------- throttling


def finding(subject: str = "a") -> RuleFinding:
    return RuleFinding(subject=subject, text=f"{subject} is wrong")


@pytest.mark.parametrize(
    ("severity", "minutes"),
    [(Severity.P0, 5), (Severity.P1, 30), (Severity.P2, 15), (Severity.P3, 15)],
)
def test_standing_alert_is_repeated_by_severity_and_subject(severity: Severity, minutes: int):
    rule = Another(lambda _: None)
    rule.severity = severity
    throttle = AlertThrottle("page")
    again = minutes * MINUTE
    assert AGAIN_MS[severity] == again
    assert len(throttle.update(rule, [finding()], 0)) == 1
    assert throttle.update(rule, [finding()], again - 1) == []
    assert len(throttle.update(rule, [finding(), finding("b")], again - 1)) == 1
    (told,) = throttle.update(rule, [finding(), finding("b")], again)
    assert told.subject == "a"


def test_healed_alert_can_alert_again_at_once_but_a_flickering_one_does_not():
    rule, throttle = Another(lambda _: None), AlertThrottle("page")
    throttle.update(rule, [finding()], 0)
    assert throttle.update(rule, [], 1_000) == []
    assert throttle.update(rule, [finding()], 2_000) == []
    assert throttle.update(rule, [], 3_000) == []
    assert throttle.update(rule, [], 3_000 + CALM_MS - 1) == []
    (healed,) = throttle.update(rule, [], 3_000 + CALM_MS)
    assert (healed.healed, healed.text) == (True, "over: a is wrong")
    (told,) = throttle.update(rule, [finding()], 4_000 + CALM_MS)
    assert not told.healed


def test_alert_sent_here_is_not_repeated_because_another_sent_it_before():
    rule, throttle = Another(lambda _: None), AlertThrottle("page")
    again = AGAIN_MS[rule.severity]
    throttle.update(rule, [finding()], 0)
    (earlier,) = throttle.standing(0)
    throttle.update(rule, [finding()], again)
    throttle.restore([earlier], 0)
    assert throttle.update(rule, [finding()], again + 1) == []
    (told,) = throttle.update(rule, [finding()], 2 * again)
    assert not told.healed


def test_one_rule_reports_a_bounded_number_of_subjects_at_once():
    throttle = AlertThrottle("page")
    findings = [finding(str(number)) for number in range(1_000)]
    assert len(throttle.update(Another(lambda _: None), findings, 0)) == 50


def test_standing_alert_is_repeated_and_does_not_heal_behind_many_other_findings():
    rule, throttle = Another(lambda _: None), AlertThrottle("page")
    again = AGAIN_MS[rule.severity]
    others = [finding(str(number)) for number in range(MOST_SUBJECTS)]
    throttle.update(rule, [finding()], 0)
    throttle.update(rule, [], 1_000)
    throttle.update(rule, [*others, finding()], 2_000)
    assert throttle.update(rule, others, 1_000 + CALM_MS) == []
    repeated = throttle.update(rule, [*others, finding()], again)
    assert ("a", False) in [(one.subject, one.healed) for one in repeated]


# ------------------------------------------------------------------------------------- sinks


class Receiver(ThreadingHTTPServer):
    """A service that apprise notifies by its json:// scheme."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Taking)
        self.got: list[dict[str, Any]] = []
        self.came = threading.Condition()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.status = 200

    @property
    def url(self) -> str:
        return f"json://user:hunter2@127.0.0.1:{self.server_port}/hunter2"

    def wait(self, holds: Callable[[list[dict[str, Any]]], bool]) -> list[dict[str, Any]]:
        with self.came:
            assert self.came.wait_for(lambda: holds(self.got), LIMIT_S), self.got
            return list(self.got)


class _Taking(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.came:
            self.server.got.append(body)
            self.server.came.notify_all()
        self.server.may_answer.wait(LIMIT_S)
        self.send_response(self.server.status)
        self.end_headers()

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.may_answer.set()
    server.shutdown()
    thread.join()
    server.server_close()


def alert(subject: str = "calls") -> Alert:
    return Alert(
        rule="no_worker",
        severity=Severity.P1,
        subject=subject,
        text="no worker serves the lane <b>calls</b>",
        runbook="https://runbooks/x#no_worker",
    )


def test_alert_is_sent_through_apprise(receiver: Receiver):
    sink = AppriseSink(receiver.url, "alerts.urls: address 1")
    sink.send(alert())
    (got,) = receiver.wait(bool)
    sink.close()
    assert got["title"] == "[P1] no_worker: calls"
    assert "https://runbooks/x#no_worker" in got["message"]
    assert got["type"] == "failure"


def test_name_in_an_alert_is_no_markup_to_a_service_that_takes_html(receiver: Receiver):
    sink = AppriseSink(f"{receiver.url}?format=html", "alerts.urls: address 1")
    sink.send(alert())
    (got,) = receiver.wait(bool)
    sink.close()
    assert "<b>" not in got["message"]


def test_hanging_service_delays_no_caller_and_too_many_alerts_are_dropped(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):
    receiver.may_answer.clear()
    sink = AppriseSink(receiver.url, "alerts.urls: address 1")
    sink.send(alert())
    receiver.wait(bool)
    for number in range(MOST_WAITING + 5):
        sink.send(alert(str(number)))
    assert caplog.text.count("is too slow") == 5
    sink.close(drain_s=0)
    assert caplog.text.count("alert dropped") == 5 + MOST_WAITING
    assert caplog.text.count("alert may be lost rule=no_worker") == 1
    receiver.may_answer.set()
    sink._thread.join(LIMIT_S)
    assert not sink._thread.is_alive()


EXITING = """
import sys
from headway.server.alerts.apprise_sink import AppriseSink
from headway.server.alerts.rules import Severity
from headway.server.alerts.watch import Alert

sink = AppriseSink(sys.argv[1], "address 1")
fields = {"rule": "a", "subject": "b", "text": "c", "runbook": "d"}
sink.send(Alert(severity=Severity.P1, **fields))
sys.stdin.readline()
sink.close(0)
"""


@pytest.mark.parametrize(
    "url",
    [
        "json://127.0.0.1:{port}?rto=600",
        "mailto://u:p@example.org?smtp=127.0.0.1&port={port}&mode=insecure&to=a@example.org&cto=600",
    ],
)
def test_exiting_process_does_not_wait_for_the_timeouts_of_an_address(url: str):
    """The service accepts connections, and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(LIMIT_S)
        address = url.format(port=server.getsockname()[1])
        command = [sys.executable, "-W", "ignore", "-c", EXITING, address]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, stdin=pipe, stderr=pipe, text=True) as process:
            try:
                connection, _ = server.accept()
                with connection:
                    _, errors = process.communicate("\n", timeout=LIMIT_S)
            finally:
                process.kill()
    assert process.returncode == 0, errors
    assert "alert may be lost rule=a" in errors


def test_refusing_service_is_logged_without_its_address(
    receiver: Receiver, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.DEBUG)
    for name in ("apprise", "urllib3"):
        caplog.set_level(logging.DEBUG, name)
    receiver.status = 500
    sink = AppriseSink(receiver.url, "alerts.urls: address 1")
    sink.send(alert())
    receiver.wait(bool)
    sink._waiting.put(None)
    sink._thread.join(LIMIT_S)
    assert "address 1 did not accept an alert of no_worker" in caplog.text
    assert "hunter2" not in caplog.text


async def test_server_alerts_the_configured_recipients(receiver: Receiver):
    alerts = {"urls": [receiver.url], "each": "100ms", "no_worker_for": "1ms"}
    async with serving(chores=True, alerts=alerts) as rig:
        await rig.send(lane="calls")
        (got,) = await asyncio.to_thread(receiver.wait, bool)
        assert got["title"] == "[P1] no_worker: calls"


async def test_stopping_watcher_first_sends_the_alerts_that_wait_for_a_slow_address(
    receiver: Receiver,
):
    """The next leader would not send them: they are stored as sent."""
    receiver.may_answer.clear()
    world = World(no_worker_for_ms=0)
    for lane in ("calls", "mails"):
        await world.app.send_async("noop", lane=lane)
    watch = world.another(AppriseSink(receiver.url, "alerts.urls: address 1"))
    running = asyncio.create_task(watch.run())
    await asyncio.to_thread(receiver.wait, bool)
    running.cancel()
    asyncio.get_running_loop().call_later(0.1, receiver.may_answer.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [one["title"] for one in receiver.got] == [
        "[P1] no_worker: calls",
        "[P1] no_worker: mails",
    ]
    await world.store.inner.close()


# ---------------------------------------------------------------------------------- settings


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"url": ["json://x"]}, "alerts.url: there is no such setting"),
        ({"urls": "json://secret"}, "alerts.urls: "),
        ({"each": "1ms"}, "alerts.each is '1ms': it should be at least 100ms"),
        ({"no_worker_for": "soon"}, "alerts.no_worker_for"),
        ({"dead_jobs_more_than": -1}, "more_than is -1: it should be at least 0"),
        ({"runbooks": 5}, "alerts.runbooks is 5"),
    ],
)
def test_invalid_settings_are_refused_by_their_key(given: Any, message: str):
    with pytest.raises(hw.InvalidValue, match=message) as raised:
        read_table("alerts", AlertSettings, given)
    assert "secret" not in str(raised.value)


async def test_existing_rule_can_be_disabled(world: World):
    world.settings = AlertSettings(off=frozenset({"no_worker"}), no_worker_for="0s")
    world.watch = world.another(world.told)
    await world.app.send_async("noop", lane="calls")
    assert await world.check() == []
    with pytest.raises(hw.InvalidValue, match="no rule 'dead'"):
        check_names([engine_rule_set(world.settings)], off=["dead"])


@pytest.mark.parametrize("url", ["nothing://hunter2", "slack://hunter2", "tgram://hunter2/"])
def test_address_that_apprise_cannot_read_is_not_logged(url: str, caplog: pytest.LogCaptureFixture):
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "apprise")
    assert not is_known(url)
    with pytest.raises(hw.InvalidValue, match="address 1 is not an address"):
        AppriseAddress(url, "address 1")
    assert "hunter2" not in caplog.text


async def test_address_unknown_to_apprise_is_refused_and_not_shown():
    store = open_store("memory://")
    service = Service(store, ServerOptions(alerts={"urls": ["nothing://hunter2"]}))
    with pytest.raises(hw.InvalidValue, match="address 1 is not an address") as raised:
        start_alerts(service)
    assert "hunter2" not in str(raised.value)
    await service.close()
    await store.close()


def test_every_rule_has_a_runbook_where_its_link_points_to():
    page = Path(AlertSettings().runbooks)
    headings = (Path(__file__).parents[2] / page).read_text("utf-8").splitlines()
    for rule in rules(AlertSettings()):
        assert f"### {rule.name}" in headings
