"""The program: five lanes with their targets, and one small module for each type of job."""

from __future__ import annotations

import headway as hw
from examples.lanes.handlers import (
    ai_suggest_post,
    ai_summarize_board,
    archive_board,
    close_board,
    dedup_prospects,
    enrich_prospect,
    gpt_ai_cofac_nudging,
    health_check,
    import_prospects,
    metric_rollup,
    notify_push,
    publish_post,
    purge_sessions,
    rebuild_search_index,
    send_digest,
    send_email,
    send_invoice,
    send_outreach,
    vacuum_logs,
)
from examples.lanes.world import World, world_from

# A type whose handler creates jobs of another type comes after it.
TYPES = (
    send_email,
    send_outreach,
    send_digest,
    send_invoice,
    notify_push,
    import_prospects,
    dedup_prospects,
    enrich_prospect,
    rebuild_search_index,
    ai_summarize_board,
    ai_suggest_post,
    gpt_ai_cofac_nudging,
    publish_post,
    close_board,
    archive_board,
    purge_sessions,
    vacuum_logs,
    metric_rollup,
    health_check,
)
"""Each module declares its type; `noop` is built in."""


def declare_lanes(app: hw.App, world: World) -> None:
    """Declare the lanes and all types."""
    app.lane("send_email", target="5s", concurrency=3)
    app.lane("send_outreach", target="5m", concurrency=4)
    app.lane("import_prospects", target="30m", concurrency=2)
    app.lane("enrich", target="5m", concurrency=2)
    app.lane("notify", target="5s", concurrency=1)
    for module in TYPES:
        module.declare(app, world)


app = hw.App(name="lanes example")
declare_lanes(app, world_from())
