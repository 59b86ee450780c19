"""An App that has called a server, in a process that is forked afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import headway as hw
from headway.core.errors import StoreUnavailable
from headway.stores import open_store
from tests.client.served import Served

LIMIT_S = 120


def refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except StoreUnavailable as error:
        return "forked" in str(error)
    return False


def test_app_used_before_a_fork_is_refused_in_the_child_until_it_opens_its_own() -> None:
    with Served(open_store("memory://")) as served, hw.App(served.url) as app:
        sent = app.send("noop")
        pid = os.fork()
        if pid == 0:
            code = 1
            signal.alarm(LIMIT_S)  # a call that waits for the parent's thread never returns
            try:
                calls = [lambda: app.find(sent.id), lambda: app.wait(sent.id, within="0s")]
                if all(map(refused, calls)):
                    app.close()
                    code = 0 if app.find(sent.id) else 2
            finally:
                os._exit(code)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert app.find(sent.id)
