"""Regenerates the Lua of the rules; with `--check` it only says which files would change."""

from __future__ import annotations

import sys
from pathlib import Path

from tools.lua.translate import Rule, Translator

LUA = Path(__file__).parents[2] / "src/headway/stores/redis/lua"

RULES = (
    Rule("headway.core.gates.slots", "Slots", ("UNLIMITED", "room")),
    Rule("headway.core.gates.pool", "Pool", ("member_gate", "choose")),
    Rule("headway.core.gates.hours", "Hours", ("is_open", "next_opening")),
    Rule("headway.core.gates.view", "GateView", ("RESERVED_MS", "GateView")),
    Rule("headway.core.cascade", "Cascade", ("CANDIDATE", "Cascade", "in_turn")),
    Rule("headway.core.fairness", "Fairness", ("Fairness",)),
    Rule("headway.core.claim", "Claiming", ("decide", "may_feed")),
    Rule("headway.core.retry", "RetryPolicy", ("RetryPolicy",)),
    Rule("headway.core.state", "State", ("FINAL", "HELD", "QUEUED", "check_move")),
    Rule("headway.stores.ledger.gaterows", "GateRow", ("FOREVER",)),
    Rule("headway.stores.ledger.rows", "JobRow", ("JobRow.accepted",)),
    Rule(
        "headway.stores.ledger.attempts",
        "Attempts",
        ("another_stage", "enter", "end_turn", "accept", "lapse", "take_from", "ask_provider"),
    ),
    Rule(
        "headway.stores.ledger.verbs.signal",
        "ApplySignal",
        ("_apply_new", "_keep", "apply_kept"),
    ),
    Rule(
        "headway.stores.ledger.verbs.settle",
        "Outcomes",
        (
            *("_succeeded", "_failed", "_died", "_snoozed", "_released", "_next_stage", "_unfit"),
            *("_handed_over", "_known_as", "_returned", "_gave_back", "_already"),
            "MAX_RESULT",
        ),
    ),
    Rule(
        "headway.stores.ledger.verbs.act",
        "Actions",
        ("_cancel", "_retry", "_run_now", "_edit", "_force"),
    ),
    Rule(
        "headway.stores.ledger.gatechanges",
        "GateChanges",
        ("declare_gate", "set_gate", "reset_gate", "open_gate"),
    ),
    Rule(
        "headway.stores.ledger.verbs.define",
        "Definitions",
        (
            *("_declare_gate", "_set_gate", "_reset_gate", "_close", "_open"),
            *("_declare_lane", "_set_lane", "_reset_lane"),
            *("_declare_entry", "_enable_entry", "_remove_entry"),
        ),
    ),
    Rule(
        "headway.stores.ledger.gatebook",
        "Book",
        (
            *("GateBook.view", "GateBook.implicit", "GateBook.opens_at", "GateBook.reserve"),
            *("GateBook.unreserve", "GateBook.count_taken", "GateBook.trim", "GateBook.give_back"),
            *("GateBook.forget_view", "GateBook.remember_member", "use_at"),
            *("GateBook.is_shut", "GateBook._close", "GateBook._view_of"),
        ),
    ),
    Rule(
        "headway.stores.ledger.feeding",
        "Parked",
        ("arm", "refit", "from_parked", "_keep_waiting", "_never_fits", "_run_timer"),
    ),
    Rule("headway.stores.ledger.promotion", "DueFires", ("decide_fires",)),
    Rule("headway.stores.ledger.verbs.sweep", "Sweep", ("_deadlines", "expire")),
    Rule(
        "headway.stores.ledger.step",
        "Moves",
        ("Step.end", "Step.requeue", "Step.keep_run", "Step.close", "Step.close_gate", "run_error"),
    ),
)
"""What is translated."""

_LEDGER = "headway.stores.ledger"
BY_HAND = {
    f"{_LEDGER}.ledger.Ledger": "base.run",
    f"{_LEDGER}.ledger.Ledger.now": "base.time",
    f"{_LEDGER}.ledger.Ledger.read_ahead": "-",
    f"{_LEDGER}.tables.CountTable": "tables.counts",
    f"{_LEDGER}.tables.EntryTable": "tables.declared",
    f"{_LEDGER}.tables.EntryTable.load": "tables.declared:entry",
    f"{_LEDGER}.tables.EntryTable.save": "tables.declared:save_entry",
    f"{_LEDGER}.tables.GateTable": "tables.gates",
    f"{_LEDGER}.tables.JobTable": "tables.jobs",
    f"{_LEDGER}.tables.LaneTable": "tables.lanes",
    f"{_LEDGER}.tables.PermitTable": "tables.permits",
    f"{_LEDGER}.tables.SignalTable": "tables.signals",
    f"{_LEDGER}.tables.TrailTable": "tables.trail",
    f"{_LEDGER}.tables.WorkerTable": "tables.workers",
    f"{_LEDGER}.step.Step": "engine.step",
    f"{_LEDGER}.step.keep_key": "tables.dedupe",
    f"{_LEDGER}.step.Step.kept_events": "tables.signals:kept",
    f"{_LEDGER}.step.Step.wake": "base.run",
    f"{_LEDGER}.gatebook.GateBook": "engine.gate_book",
    f"{_LEDGER}.gatebook.GateBook.refuse_members_name": "engine.gate_names",
    f"{_LEDGER}.attempts.stage_of": "engine.flow_of",
    f"{_LEDGER}.insert.make_ready": "engine.flow_of",
    f"{_LEDGER}.insert.accepted_job": "engine.new_jobs",
    f"{_LEDGER}.insert.follow_up": "engine.new_jobs",
    f"{_LEDGER}.insert.reconcile_job": "engine.new_jobs",
    f"{_LEDGER}.insert.kept_for": "tables.jobs",
    f"{_LEDGER}.packing.decode_signal": ":cmsgpack.unpack",
    f"{_LEDGER}.packing.encode_signal": ":cmsgpack.pack",
    f"{_LEDGER}.feeding": "engine.feeding",
    f"{_LEDGER}.gaterows.TemplateRow.current": "tables.gates",
    f"{_LEDGER}.rows.LaneRow.current": "tables.lanes",
    f"{_LEDGER}.gatechanges.save_template": "engine.gate_templates",
    f"{_LEDGER}.gatechanges.track_implicit": "engine.gate_templates",
    f"{_LEDGER}.gatechanges._with_values": "engine.gate_templates",
    f"{_LEDGER}.gatekinds.GateRules": "engine.gate_kinds",
    f"{_LEDGER}.tables.StartTable": "tables.starts",
    f"{_LEDGER}.gatekinds.rules_of": "engine.gate_kinds:of",
    f"{_LEDGER}.verbs.define._same_schedule": "tables.declared",
    f"{_LEDGER}.verbs.define._with_id": "engine.new_jobs",
    f"{_LEDGER}.verbs.settle._cut": "=",
    "headway.contract.outcomes.Failed.line": ".",
    "headway.core.gates.spec.is_implicit": "engine.gate_names",
    "headway.core.job.body_hash": "engine.new_jobs",
    "headway.core.retry.draw": "base.python",
}
"""What the rules use of Lua that is written by hand: the module, and its name there if it has
another; all of a class if the class is named. A protocol's object is the script itself, and a
method that stands elsewhere than its class is not passed its object. "-" is nothing to do in a
script, "=" the first argument as it is, "." a property that a request brings as a field."""


def written() -> dict[Path, str]:
    """The text of each file."""
    return {
        LUA.joinpath(*rule.file.split(".")).with_suffix(".lua"): Translator(
            RULES, rule, BY_HAND
        ).text()
        for rule in RULES
    }


def main() -> int:
    changed = {
        path: text
        for path, text in written().items()
        if not path.exists() or path.read_text(encoding="utf-8") != text
    }
    for path, text in changed.items():
        print(path.relative_to(LUA))
        if "--check" not in sys.argv:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return len(changed) if "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
