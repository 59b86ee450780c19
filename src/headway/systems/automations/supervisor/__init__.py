"""The supervisor of one session: a separate process that needs only the standard library.

It prepares the repository, runs the command in its own process group, captures the output, and
kills every process of the session at the timeout, on a stop request, when the lease ends, or when
its owner, the process that started it, is gone. It is the subreaper of its descendants, so that a
child which leaves the group is found, too.

Python runs this folder by its path, in isolated mode and without `headway`: its files import each
other by their own names. `files.py` imports none of them, so the owner can import it as well.

Standard input is one JSON line with the specification (`AutomationSession._spec`), then one line
each: `{"until": seconds}` moves the end of the lease, on the clock of `time.monotonic`;
`{"stop": reason, "grace": seconds}` ends the session, by default with the grace period of the
specification. The end of the input means that the owner is gone.

Standard output is one JSON line each: `{"event": "started", "pid"}`,
`{"event": "remade", "what", "kept"}`, and at the end
`{"event": "ended", "reason", "status", "signal", "step", "error", "bytes", "truncated"}`. The
reasons are `exit`, `timeout`, `lease`, `gone` (the owner), `setup`, and those of `stop`.
"""
