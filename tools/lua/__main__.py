"""Writes the Lua of the rules anew; with `--check` it only says which files would change."""

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
    Rule("headway.stores.ledger.rows", "JobRow", ("JobRow.accepted",)),
)
"""What is translated."""


def written() -> dict[Path, str]:
    """The text of each file."""
    return {
        LUA.joinpath(*rule.file.split(".")).with_suffix(".lua"): Translator(RULES, rule).text()
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
