"""Apprise: any of the services that it knows, by a URL that is never shown."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

from apprise import NotifyType

from headway.core.errors import InvalidValue
from headway.runtime.timing import Timing
from headway.server.alerts.apprise_sink import AppriseAddress
from headway.systems.last_moment import Withdrawn, last_moment
from headway.systems.notifications.senders.sender import (
    Accepted,
    Message,
    Outcome,
    Refused,
    Unavailable,
    Unsure,
)
from headway.systems.notifications.senders.settings import AppriseTable


class AppriseUrl:
    """Sends to the service of each message's URL, on threads of its own."""

    def __init__(self, settings: AppriseTable, timing: Timing) -> None:
        """Start nothing yet."""
        self._timeout_s = settings.timeout / 1000
        self._timing = timing
        self._threads = ThreadPoolExecutor(settings.threads, thread_name_prefix="apprise")

    async def send(self, message: Message) -> Outcome:
        """See `Sender.send`.

        Apprise answers yes or no. A no can be a refusal, but a lost answer as well, so it is
        `Unsure`.

        Raises:
            Withdrawn: see there.
        """
        try:
            address = AppriseAddress(message.to, "the address")
        except InvalidValue as error:
            return Refused(error.message)
        # A scheme names the service; what stands behind it can be a secret.
        service = message.to.partition(":")[0][:20]
        loop, context = asyncio.get_running_loop(), copy_context()

        def run() -> bool | None:
            check = context.run(asyncio.run_coroutine_threadsafe, last_moment(), loop)
            check.result(self._timeout_s)
            return address.send(message.title, message.text, NotifyType.INFO)

        job = self._threads.submit(run)
        try:
            async with self._timing.limit(self._timeout_s):
                confirmed = await asyncio.wrap_future(job)
        except TimeoutError:
            if job.cancelled():
                return Unavailable("all threads for apprise were busy")
            return Unsure(f"{service} did not answer in time")
        except Withdrawn:
            raise
        except Exception as error:  # noqa: BLE001  (a service's own code, which can raise anything)
            return Unsure(f"{service} failed: {type(error).__name__}")
        return Accepted(None) if confirmed else Unsure(f"{service} did not confirm it")

    async def close(self) -> None:
        """See `Sender.close`; what is under way ends by itself."""
        self._threads.shutdown(wait=False, cancel_futures=True)
