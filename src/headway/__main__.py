"""The `headway` command, also as `python -m headway`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command. Ctrl-C ends it without a traceback while it is still being loaded, too."""
    # Until the command is loaded: collections took a quarter of that time, and found little.
    gc.disable()
    _open_closed_streams()
    try:
        from headway.cli.main import main as run  # noqa: PLC0415  (loading takes a while)
    except KeyboardInterrupt:
        sys.exit(130)  # `failures.INTERRUPTED`, which may not be loaded
    run()


def _open_closed_streams() -> None:
    """Open the null device for standard streams that were closed at the start, as by `>&-`.

    Otherwise a socket or a file would get the number of one, which uvloop does not accept.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null, True)
            setattr(sys, name, os.fdopen(null, mode))


if __name__ == "__main__":
    main()
