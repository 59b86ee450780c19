"""`python -m tests.servers.brokers start` and `stop`, as used by `make brokers`."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.servers.brokers.sharing import hold, start, stop

match sys.argv[1:]:
    case ["start"]:
        start()
    case ["stop"]:
        stop()
    case ["hold", name, folder]:
        hold(name, Path(folder))
    case _:
        sys.exit("start or stop")
