"""Starting to see calls: rules, metrics and counts of one server."""

from __future__ import annotations

from headway.server.alerts.facts import Facts
from headway.server.alerts.rule_book import RuleBook
from headway.server.service import Service
from headway.systems.calls.seen.intakes import Intakes
from headway.systems.calls.seen.rules import call_rules
from headway.systems.calls.seen.sight import Sight, look_at_calls
from headway.systems.calls.seen.source import CallMetrics
from headway.systems.calls.seen.tally import Tally
from headway.systems.calls.seen.thresholds import Thresholds


def start_seeing(service: Service, tally: Tally, thresholds: Thresholds) -> None:
    """Adds the rules and metrics of calls to a server, and counts what it takes in.

    Args:
        service: of the server; not yet answering.
        tally: what is counted.
        thresholds: from which values on the rules speak.

    Raises:
        InvalidValue: the server has rules of these names already.
    """

    async def see(facts: Facts) -> Sight | None:
        return await look_at_calls(service.store, tally, facts)

    service.alerts.add(
        RuleBook(rules=lambda: call_rules(thresholds), see=see, runbooks=thresholds.runbooks)
    )
    service.scrapes.add(CallMetrics(service.store, tally))
    intakes = Intakes(service.scrapes.requests, tally, service.timing)
    service.spawn(intakes.run(), "intakes of calls")
