"""The judge of service requests: compares the messages to people with the store's record."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from headway.carrier.ledger import CarrierLedger
from headway.contract.views import JobView
from headway.core.cascade import Answer
from headway.core.state import State
from headway.systems.field_service.request import acceptor, last_run, offer_of, run_of
from tests.systems.field_service.field_rig import phone_of
from tests.systems.field_service.history_checks import Story, check_story
from tests.torture.checker import Violation

WON = "You have it"
"""The start of the text that only the winner gets."""


@dataclass(kw_only=True, slots=True)
class Seen:
    """Observations from outside.

    Attributes:
        sent: ids of the requests acknowledged by the server.
        kills: kills by kind of process.
        looks: checks of the store during the run.
        answers: answers by API, by status of the reply.
        found: violations found during the run.
    """

    sent: list[str] = field(default_factory=list[str])
    kills: Counter[str] = field(default_factory=Counter[str])
    looks: int = 0
    answers: Counter[int] = field(default_factory=Counter[int])
    found: list[Violation] = field(default_factory=list[Violation])


def two_at_once(awaiting: Iterable[JobView]) -> Iterator[Violation]:
    """Yield technicians who have two offers at once, or an offer and a request.

    Args:
        awaiting: the requests that await an answer or their end, with their runs.
    """
    has: dict[str, str] = {}
    for job in awaiting:
        run = last_run(job)
        who = acceptor(job) or (run.candidate if run is not None else "")
        if who in has:
            yield Violation("two at once", f"{who}: {has[who]} and {job.id}")
        has[who] = job.id


def judge(
    story: Story,
    rings: Iterable[JobView],
    ledger: CarrierLedger,
    seen: Seen,
    dispatchers: Mapping[str, str],
) -> tuple[list[str], list[Violation]]:
    """Find all violations.

    Args:
        story: the store's record.
        rings: the jobs that place calls.
        ledger: the carrier's ledger.
        seen: observations from outside.
        dispatchers: phones of those to be alerted, by id.

    Returns:
        Lines to print, and violations.
    """
    found, fates = [*seen.found], Counter[str]()
    try:
        fates = check_story(story, dispatchers)
    except AssertionError as wrong:
        found.append(Violation("record", str(wrong)[:300]))
    offers = {one.id: one for one in story.offers}
    found += [Violation("lost", one) for one in sorted(set(seen.sent) - offers.keys())]
    found += [Violation("from nowhere", one) for one in sorted(offers.keys() - set(seen.sent))]
    calls = Counter(one.plan.ref.partition(":")[0] for one in ledger.calls.values())
    found += [Violation("called twice", f"{job}: {n}") for job, n in calls.items() if n > 1]
    found += [Violation("crowded", f"{line}: {n}") for line, n in ledger.crowded().items()]
    found += _wrong_winners(offers, rings, ledger)
    again, lost = _alerts(story.alerts, ledger, dispatchers)
    # A violation seen several times is reported once.
    return [
        f"killed: {dict(seen.kills)}; {seen.looks} looks meanwhile",
        f"{len(offers)} requests: {dict(fates)}; answers by API: {dict(seen.answers)}",
        f"{len(ledger.calls)} calls, {len(ledger.texts)} messages; "
        f"requests {dict(ledger.requests)}, webhooks {dict(ledger.posts)}",
        f"{len(story.alerts)} alerts, {again} of them sent again as nobody knew of the first",
    ], list(dict.fromkeys([*found, *lost]))


def _wrong_winners(
    offers: Mapping[str, JobView], rings: Iterable[JobView], ledger: CarrierLedger
) -> Iterator[Violation]:
    """Check that a technician to whom a call said that he has a request does have it."""
    about = {one.id: run_of(offer_of(one))[0] for one in rings}
    told: dict[str, set[str]] = defaultdict(set)
    for call in ledger.calls.values():
        request = about.get(call.plan.ref.partition(":")[0])
        if request is not None and any(one.startswith(WON) for one in call.heard):
            told[request].add(call.plan.to)
    for request, phones in told.items():
        asked = () if (job := offers.get(request)) is None else job.cascade and job.cascade.asked
        won = {phone_of(one.candidate) for one in asked or () if one.answer is Answer.ACCEPTED}
        if phones - won:
            yield Violation("told that he has it", f"{request}: {sorted(phones)}, not {won}")


def _alerts(
    alerts: Iterable[JobView], ledger: CarrierLedger, dispatchers: Mapping[str, str]
) -> tuple[int, list[Violation]]:
    """Return how many alerts were repeated, and those sent too often or never."""
    found: list[Violation] = []
    told = [(one.plan.to, one.plan.text) for one in ledger.texts.values() if not one.inbound]
    again = 0
    for one in alerts:
        phones = [phone for name, phone in dispatchers.items() if f'"{name}"'.encode() in one.args]
        count = sum(to in phones and (one.subject or "-") in text for to, text in told)
        again += count > 1
        if count > len(one.runs) or (count == 0 and one.state is State.SUCCEEDED):
            found.append(Violation("alert", f"{one.id}: {count} in {len(one.runs)} runs"))
        elif one.state is not State.SUCCEEDED:
            found.append(Violation("alert", f"{one.id} is {one.state}: {one.reason}"))
    return again, found
