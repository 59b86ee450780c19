"""The `headway` command, also as `python -m headway`."""

from __future__ import annotations

import gc
import sys


def main() -> None:
    """Run the command. Ctrl-C ends it without a traceback while it is still being loaded, too."""
    # Until the command is loaded: collections took a quarter of that time, and found little.
    gc.disable()
    try:
        from headway.cli.main import main as run  # noqa: PLC0415  (loading takes a while)
    except KeyboardInterrupt:
        sys.exit(130)  # `failures.INTERRUPTED`, which may not be loaded
    run()


if __name__ == "__main__":
    main()
